"""The largest micro-batch a cell can train with, found by bisection in fresh processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from harness.machine import Fingerprint
from harness.plan import Cell, Plan, PlannedRun, RunKind
from harness.records import Record, Value
from harness.store import RUN_FILE, read_record
from harness.train.launch import launch
from harness.train.records import Outcome, RunRecord, RunSpec

STEPS, WARMUP_STEPS = 4, 2
"""From the second step on the optimizer's state is there, which the first one only builds."""
HANG_SECONDS = 300.0


class Try(Value):
    """One micro-batch, tried."""

    micro_batch: int
    outcome: Outcome
    reason: str | None
    peak_bytes: int | None
    """CUDA allocator's peak, or on CPU the resident set's, of the largest rank; where it failed, as far as it came."""


class CellFrontier(Value):
    """What one cell can hold."""

    label: str
    largest_micro_batch: int | None
    """None: not even the smallest fits, or the search ended for another reason."""
    bounded: bool
    """Whether a larger one was seen to fail; otherwise the search stopped at its own limit."""
    reason: str | None
    """Why there is no answer."""
    tries: list[Try]
    """In the order they were made."""


class Frontier(Record):
    """`frontier.json`: the cells of one suite on one machine."""

    suite: str
    fingerprint: Fingerprint
    address_space_bytes: int | None
    """What a rank may take beyond its libraries; None: all there is."""
    cells: list[CellFrontier]


def largest_fitting(fits: Callable[[int], bool], limit: int, powers_only: bool = False) -> tuple[int, bool]:
    """The largest number from 1 to `limit` that fits, if all below one that fits do; and whether a larger one failed.

    Doubles until one fails, then halves the gap. Returns 0 when 1 does not fit. `fits` is asked at most
    2 · log2(limit) + 1 times, never twice for the same number.

    Args:
        powers_only: ends with the largest power of two, without halving.
    """
    low, high = 0, 1
    while high <= limit and fits(high):
        low, high = high, high * 2
    bounded = high <= limit
    high = min(high, limit + 1)
    while high - low > 1 and not powers_only:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high, bounded = middle, True
    return low, bounded


class UnexpectedOutcome(Exception):
    """A try ended neither well nor out of memory: the bisection has no answer."""


def find_frontier(
    cell: Cell,
    folder: Path,
    machine: Fingerprint,
    *,
    limit: int,
    powers_only: bool = False,
    address_space_bytes: int | None = None,
    on_try: Callable[[Try], None] = lambda _: None,
) -> CellFrontier:
    """Tries micro-batches of a cell, each in fresh processes that have the machine to themselves.

    Args:
        folder: where the tries are recorded; one that is recorded there already is not made again.
        limit: the largest micro-batch of interest.
        powers_only: see `largest_fitting`.
        address_space_bytes: as in `RunSpec`.
        on_try: told of each try as it ends.
    """
    tries: list[Try] = []

    def fits(micro_batch: int) -> bool:
        record = _try(cell.model_copy(update={"micro_batch": micro_batch}), folder, machine, address_space_bytes)
        tries.append(_told(record))
        on_try(tries[-1])
        if record.outcome not in (Outcome.OK, Outcome.OOM):
            raise UnexpectedOutcome(f"micro-batch {micro_batch} ended {record.outcome}: {tries[-1].reason}")
        return record.outcome is Outcome.OK

    try:
        largest, bounded = largest_fitting(fits, limit, powers_only)
    except UnexpectedOutcome as error:
        return CellFrontier(label=cell.label, largest_micro_batch=None, bounded=False, reason=str(error), tries=tries)
    return CellFrontier(
        label=cell.label,
        largest_micro_batch=largest or None,
        bounded=bounded,
        reason=None if largest else "not even a micro-batch of 1 fits",
        tries=tries,
    )


def cells_of(plan: Plan) -> Iterator[Cell]:
    """The plan's cells, each once; learning and timing runs differ in the micro-batch only."""
    seen = set()
    for run in plan.runs:
        if run.cell.label not in seen:
            seen.add(run.cell.label)
            yield run.cell


def _try(cell: Cell, folder: Path, machine: Fingerprint, address_space_bytes: int | None) -> RunRecord:
    attempt = folder / cell.label / f"micro-batch-{cell.micro_batch}"
    run = PlannedRun(cell=cell, kind=RunKind.TIMING, repeat=0, training_seed=0, steps=STEPS, warmup_steps=WARMUP_STEPS)
    if (attempt / RUN_FILE).exists():
        record = read_record(attempt / RUN_FILE, RunRecord)
        if record.run == run and record.outcome in (Outcome.OK, Outcome.OOM):
            return record
    spec = RunSpec(
        run=run,
        attempt=1,
        seed=0,
        folder=str(attempt.resolve()),
        data_folder=None,
        resume_from=None,
        address_space_bytes=address_space_bytes,
    )
    return launch(spec, machine, hang_seconds=HANG_SECONDS, on_step=lambda _row: None)


def _told(record: RunRecord) -> Try:
    failure, memory = record.failure, record.memory
    peak = failure.peak_bytes if failure else None
    if memory is not None:
        allocated = memory.peak_allocated_bytes
        peak = memory.peak_resident_bytes if allocated is None else allocated
    return Try(
        micro_batch=record.run.cell.micro_batch,
        outcome=record.outcome,
        reason=failure.reason if failure else None,
        peak_bytes=peak,
    )
