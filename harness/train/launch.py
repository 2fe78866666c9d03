"""Starting a process group, watching it, and recording how it ended. Never imports torch.

A crash, an out-of-memory kill or a hang takes the ranks with it and nothing else. What the ranks have to say is in
files (`harness.train.journal`); what they leave unsaid, torchrun's report and the kernel's counters tell.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from harness.machine import Fingerprint
from harness.processes import PARENT_VARIABLE, descendants, kill_all
from harness.store import read_record, write_atomically, write_record
from harness.train.journal import (
    EXPORT,
    LOGS,
    failure_file,
    latest_checkpoint,
    read_rows,
    report_file,
    steps_file,
)
from harness.train.memory import out_of_memory_kills
from harness.train.meter import final_loss, merge_ranks, speed
from harness.train.outcome import Evidence, judge, late_rank, read_torchrun_report
from harness.train.records import Failure, Memory, Outcome, RankFailure, RankReport, RunRecord, RunSpec, StepRow
from harness.train.watch import StepsFollower, dump_stacks

__all__ = ["latest_checkpoint", "launch", "read_steps"]

WORKER = "harness.train.worker"
RUN_FILE, SPEC_FILE, STEPS_FILE = "run.json", "spec.json", "steps.parquet"
_TORCHRUN_LOG = "torchrun.log"
_POLL_SECONDS = 0.1
_START_SECONDS = 120.0
"""What importing and building may take before the first step, on top of `hang_seconds`; a busy machine is slow."""
_STOP_SECONDS = 10.0
"""How long torchrun is given to stop its ranks before they are killed."""
_WORDS = 4000
"""Characters of a rank's standard error that are kept as its last words."""

_FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_FOREIGN_PREFIXES = ("TORCHELASTIC_", "GROUP_", "ROLE_")
"""Variables by which an outer torchrun would be mistaken for ours."""

Number = TypeVar("Number", int, float)


def launch(
    spec: RunSpec,
    fingerprint: Fingerprint,
    *,
    hang_seconds: float,
    on_step: Callable[[StepRow], None],
    worker: str = WORKER,
) -> RunRecord:
    """Runs one fresh process group to its end and records it in the attempt's folder, `run.json` last.

    Args:
        hang_seconds: without a sign of life from any rank for this long, the run counts as HUNG and is ended. Before
            the first step two minutes more are granted, for importing and building.
        on_step: called with each step once all ranks have finished it (the slowest rank's times).
        worker: module each rank runs, with the path of `spec.json` as its argument.

    Raises:
        KeyboardInterrupt: passed on, after the ranks were stopped and the run was recorded as INTERRUPTED.
        DiskFull: a record could not be written. No process is left behind.
    """
    # Ranks must not give up on each other before the launcher has seen the hang and taken their stacks.
    spec = spec.model_copy(update={"collective_timeout_seconds": 2 * (hang_seconds + _START_SECONDS)})
    attempt = Path(spec.folder)
    (attempt / LOGS).mkdir(parents=True, exist_ok=True)
    write_record(attempt / SPEC_FILE, spec)
    started = _Started(datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic(), out_of_memory_kills() or 0)
    group = _Group(spec, worker)
    try:
        outcome, failure = group.watch(hang_seconds, on_step) or _judge_files(spec, group.exit_code, started)
    except KeyboardInterrupt:
        group.stop()
        interrupted = Failure(reason="interrupted by the user", rank=None, exit_code=None, traceback=None)
        _conclude(spec, fingerprint, started, Outcome.INTERRUPTED, interrupted)
        raise
    finally:
        group.stop()
    return _conclude(spec, fingerprint, started, outcome, failure)


def read_steps(attempt_folder: Path) -> list[StepRow]:
    """All steps of an attempt that every rank has finished: from `steps.parquet`, or while it runs from the ranks."""
    file = attempt_folder / STEPS_FILE
    if not file.exists():
        ranks = len(list(attempt_folder.glob("rank-*.steps.jsonl")))
        return merge_ranks([read_rows(steps_file(attempt_folder, rank)) for rank in range(ranks)])
    import pyarrow.parquet

    return [StepRow.model_validate(row) for row in pyarrow.parquet.read_table(file).to_pylist()]


@dataclass(frozen=True)
class _Started:
    at: str
    """ISO 8601, UTC."""
    monotonic: float
    out_of_memory_kills: int


class _Group:
    """torchrun and its ranks: started by the constructor, gone after `stop`."""

    def __init__(self, spec: RunSpec, worker: str) -> None:
        self._attempt, self._ranks = Path(spec.folder), spec.run.cell.ranks
        self._follower = StepsFollower(self._attempt, self._ranks)
        with (self._attempt / LOGS / _TORCHRUN_LOG).open("wb") as log:
            self._process = subprocess.Popen(
                _command(spec, worker),
                env=rank_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is ours to handle
            )

    @property
    def exit_code(self) -> int:
        """Only after the group has ended."""
        return self._process.wait()

    def watch(self, hang_seconds: float, on_step: Callable[[StepRow], None]) -> tuple[Outcome, Failure] | None:
        """Returns None when torchrun has ended, or HUNG and why when nothing has moved for too long."""
        alive_at = time.monotonic()
        while self._process.poll() is None:
            if self._follower.poll(on_step):
                alive_at = time.monotonic()
            patience = hang_seconds + (0 if self._follower.steps else _START_SECONDS)
            if time.monotonic() - alive_at > patience:
                return self._hung(patience)
            time.sleep(_POLL_SECONDS)
        self._follower.poll(on_step)
        return None

    def stop(self) -> None:
        """Ends torchrun and every process below it, gently first. Nothing happens when all are gone."""
        below = descendants(self._process.pid)
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        kill_all(below)
        self._process.wait()

    def _hung(self, patience: float) -> tuple[Outcome, Failure]:
        stacks = dump_stacks(self._attempt, self._process.pid, self._ranks)
        kill_all(descendants(self._process.pid))
        culprit = late_rank(stacks)
        phases = [self._follower.phase(rank) for rank in range(self._ranks)]
        reason = f"no rank made progress for {patience:g} s; "
        if culprit is None:
            reason += f"no single rank is at fault (while {phases[0]})"
        else:
            reason += f"rank {culprit} did not join its peers (while {phases[culprit]})"
        stack = stacks.get(culprit) if culprit is not None else stacks.get(0)
        return Outcome.HUNG, Failure(reason=reason, rank=culprit, exit_code=None, traceback=stack or None)


def _command(spec: RunSpec, worker: str) -> list[str]:
    attempt = Path(spec.folder)
    torchrun = [sys.executable, "-m", "harness.train.torchrun", "--standalone", "--local-addr=127.0.0.1"]
    places = [f"--nproc-per-node={spec.run.cell.ranks}", f"--log-dir={attempt / LOGS}", "--redirects=3"]
    return [*torchrun, *places, "-m", worker, str(attempt / SPEC_FILE)]


def rank_environment(parent: Mapping[str, str]) -> dict[str, str]:
    """The environment of the ranks: the caller's, without an outer torchrun's variables, with ours.

    One thread per rank unless the caller says otherwise, as torchrun itself would set it.
    """
    kept = {
        name: value for name, value in parent.items() if name not in _FOREIGN and not name.startswith(_FOREIGN_PREFIXES)
    }
    ours = {PARENT_VARIABLE: str(os.getpid())}
    return {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **kept, **ours}


def _judge_files(spec: RunSpec, exit_code: int, started: _Started) -> tuple[Outcome, Failure | None]:
    attempt, ranks = Path(spec.folder), range(spec.run.cell.ranks)
    log = (attempt / LOGS / _TORCHRUN_LOG).read_text(errors="replace")
    files = [failure_file(attempt, rank) for rank in ranks]
    return judge(
        Evidence(
            ranks=len(ranks),
            exit_code=exit_code,
            failures=[read_record(file, RankFailure) for file in files if file.exists()],
            torchrun=read_torchrun_report(log),
            reported=frozenset(rank for rank in ranks if report_file(attempt, rank).exists()),
            out_of_memory_kills=(out_of_memory_kills() or 0) - started.out_of_memory_kills,
            last_words={rank: _last_words(attempt, rank) for rank in ranks},
        )
    )


def _last_words(attempt: Path, rank: int) -> str:
    logs = sorted((attempt / LOGS).glob(f"*/attempt_0/{rank}/stderr.log"))
    return logs[-1].read_text(errors="replace")[-_WORDS:].strip() if logs else ""


def _conclude(
    spec: RunSpec, fingerprint: Fingerprint, started: _Started, outcome: Outcome, failure: Failure | None
) -> RunRecord:
    """Writes `steps.parquet`, then `run.json`. Only a run that ended well has figures."""
    attempt, ranks = Path(spec.folder), range(spec.run.cell.ranks)
    rows = merge_ranks([read_rows(steps_file(attempt, rank)) for rank in ranks])
    _write_steps(attempt / STEPS_FILE, rows)
    ended_well = outcome is Outcome.OK
    reports = [read_record(report_file(attempt, rank), RankReport) for rank in ranks] if ended_well else []
    first = reports[0] if reports else None
    exported = ended_well and (attempt / EXPORT).exists()
    record = RunRecord(
        run=spec.run,
        attempt=spec.attempt,
        seed=spec.seed,
        outcome=outcome,
        failure=failure,
        started_at=started.at,
        wall_seconds=time.monotonic() - started.monotonic,
        fingerprint=fingerprint,
        workload=first.workload if first else None,
        in_force=first.in_force if first else None,
        speed=speed(rows, spec.run.warmup_steps, _most([r.cpu_seconds_per_step for r in reports])) if first else None,
        memory=_memory(reports) if reports else None,
        final_loss=final_loss(rows) if ended_well else None,
        checkpoint_save_seconds=_most([report.checkpoint_save_seconds for report in reports]),
        checkpoint_load_seconds=_most([report.checkpoint_load_seconds for report in reports]),
        checkpoint_bytes=first.checkpoint_bytes if first else None,
        export=EXPORT if exported else None,
    )
    write_record(attempt / RUN_FILE, record)
    return record


def _memory(reports: list[RankReport]) -> Memory:
    return Memory(
        peak_resident_bytes=max(report.peak_resident_bytes for report in reports),
        peak_allocated_bytes=_most([report.peak_allocated_bytes for report in reports]),
        peak_reserved_bytes=_most([report.peak_reserved_bytes for report in reports]),
        shards=[report.shard for report in reports],
    )


def _most(values: Sequence[Number | None]) -> Number | None:
    """The largest, or None when any rank has none."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _write_steps(file: Path, rows: list[StepRow]) -> None:
    if not rows:
        return
    import pyarrow
    import pyarrow.parquet

    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row.model_dump() for row in rows]), buffer)
    write_atomically(file, buffer.getvalue().to_pybytes())
