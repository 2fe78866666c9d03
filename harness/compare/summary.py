"""One cell in one row: figures over its runs, and whether its parameters are really sharded."""

from __future__ import annotations

import statistics

from harness.backends.options import DeepSpeedOptions, Fsdp2Options, FsdpOptions
from harness.compare.metrics import METRICS, read
from harness.compare.results import Results, ended_well
from harness.compare.throughput import counts
from harness.compare.verdict import Judgement, Verdict
from harness.plan import Cell, PlannedRun, RunKind
from harness.records import Value
from harness.train.records import InForce, RunRecord, ShardBytes

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
SHARE_SLACK = 1.25
"""Padding and small parameters kept whole may make a rank's share this much larger than 1/world."""


class CellSummary(Value):
    """Figures of one cell. None where no run gave one."""

    label: str
    cell: Cell
    planned_runs: int
    """Timing runs."""
    used_runs: int
    """Timing runs behind the figures of speed: those that count (`throughput.counts`), or all when none does."""
    steady: bool | None
    step_seconds: float | None
    """Geometric mean over runs of their median step time."""
    p95_step_seconds: float | None
    """The largest of the runs'."""
    data_seconds: float | None
    samples_per_second: float | None
    tokens_per_second: float | None
    peak_resident_bytes: int | None
    """Maximum over ranks and runs, as are the next two."""
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    shards: list[ShardBytes]
    """By rank, of the first run."""
    in_force: InForce | None
    tokens_definition: str | None
    checkpoint_save_seconds: float | None
    """Median over runs that saved; likewise loading."""
    checkpoint_load_seconds: float | None
    checkpoint_bytes: int | None
    final_losses: list[float]
    """Of the learning runs, by training seed."""


def summarize(label: str, planned: list[PlannedRun], results: Results) -> CellSummary:
    """Gathers what the runs of one cell show. `planned` are this cell's planned runs, at least one."""
    timing = ended_well(results.of(label, RunKind.TIMING))
    learning = ended_well(results.of(label, RunKind.LEARNING))
    timed = [run for run in timing if run.speed is not None]
    steady = [run for run in timed if counts(run)]
    used = steady or timed
    every = timing + learning
    facts = next((run for run in every if run.in_force is not None), None)
    memory = [run.memory for run in (timing or learning) if run.memory is not None]
    return CellSummary(
        label=label,
        cell=planned[0].cell,
        planned_runs=sum(run.kind is RunKind.TIMING for run in planned),
        used_runs=len(used),
        steady=bool(steady) if timed else None,
        step_seconds=_mean("step_seconds", used),
        p95_step_seconds=max((run.speed.p95_step_seconds for run in used if run.speed), default=None),
        data_seconds=max((run.speed.median_data_seconds for run in used if run.speed), default=None),
        samples_per_second=_mean("samples_per_second", used),
        tokens_per_second=_mean("tokens_per_second", used),
        peak_resident_bytes=max((m.peak_resident_bytes for m in memory), default=None),
        peak_allocated_bytes=max((m.peak_allocated_bytes for m in memory if m.peak_allocated_bytes), default=None),
        peak_reserved_bytes=max((m.peak_reserved_bytes for m in memory if m.peak_reserved_bytes), default=None),
        shards=memory[0].shards if memory else [],
        in_force=facts.in_force if facts else None,
        tokens_definition=facts.workload.tokens_definition if facts and facts.workload else None,
        checkpoint_save_seconds=_median("checkpoint_save_seconds", every),
        checkpoint_load_seconds=_median("checkpoint_load_seconds", every),
        checkpoint_bytes=max((run.checkpoint_bytes for run in every if run.checkpoint_bytes), default=None),
        final_losses=[run.final_loss for run in learning if run.final_loss is not None],
    )


def judge_sharding(label: str, runs: list[RunRecord]) -> Judgement | None:
    """Do the ranks hold their share only? None for cells that keep whole parameters, or without figures.

    The share is the largest rank's parameter bytes over all parameters at the master dtype's size.
    """
    run = next((r for r in ended_well(runs) if r.memory and r.workload and r.in_force), None)
    if run is None or not shards_parameters(run.run.cell):
        return None
    assert run.memory and run.workload and run.in_force
    whole = run.workload.parameters * DTYPE_BYTES.get(run.in_force.master_dtype.removeprefix("torch."), 4)
    share = max(shard.parameter_bytes for shard in run.memory.shards) / whole
    world = run.in_force.world_size
    good = share <= SHARE_SLACK / world
    return Judgement(
        question="sharding",
        subject=label,
        metric="parameter_bytes",
        verdict=Verdict.PASS if good else Verdict.INCOMPARABLE,
        value=share,
        reference=1 / world,
        n=1,
        reason=f"a rank holds {share:.0%} of the parameters; 1/{world} is {1 / world:.0%}"
        + ("" if good else ": this cell does not shard"),
    )


def shards_parameters(cell: Cell) -> bool:
    """Whether the backend promises each rank only its part of the parameters."""
    options = cell.backend
    if isinstance(options, DeepSpeedOptions):
        return options.zero_stage == 3
    return isinstance(options, FsdpOptions | Fsdp2Options)


def _mean(metric: str, runs: list[RunRecord]) -> float | None:
    figures = read(METRICS[metric], runs)
    return statistics.geometric_mean(figures) if figures and min(figures) > 0 else None


def _median(metric: str, runs: list[RunRecord]) -> float | None:
    figures = read(METRICS[metric], runs)
    return statistics.median(figures) if figures else None
