"""One cell in one row: figures over its runs."""

from __future__ import annotations

import statistics

from harness.compare.metrics import METRICS, read
from harness.compare.results import Results, ended_well
from harness.compare.throughput import counts
from harness.plan import Cell, PlannedRun, RunKind
from harness.records import Value
from harness.statistics.moments import of_all
from harness.train.disturbance import disturbance, usual_mhz
from harness.train.facts import InForce, ShardBytes
from harness.train.records import RunRecord, Speed


class WithinStep(Value):
    """Where a cell's steps spend their time: medians over runs of the runs' medians. None where a run cannot tell."""

    p50_step_seconds: float
    forward_seconds: float | None
    backward_seconds: float | None
    optimizer_seconds: float | None
    skew_seconds: float | None
    """How far apart the ranks were at the end of a phase, at most."""
    mfu: float | None
    hfu: float | None
    joules_per_sample: float | None
    built_steps: int
    """Measured steps in which something was compiled, of all runs."""


class CellSummary(Value):
    """Figures of one cell. None where no run gave one."""

    label: str
    cell: Cell
    planned_runs: int
    """Timing runs."""
    used_runs: int
    """Timing runs behind the figures of speed: those that count (`throughput.counts`), or all when none does."""
    steady: bool | None
    set_aside_runs: int = 0
    """Timing runs that ended well and were measured again, since others disturbed their block; in no figure."""
    disturbed_runs: dict[str, str] = {}
    """Timing runs behind the figures that were disturbed: key → by what."""
    step_seconds: float | None
    """Geometric mean over runs of their median step time."""
    p95_step_seconds: float | None
    """The largest of the runs', as is the next."""
    p99_step_seconds: float | None = None
    within: WithinStep | None = None
    """None where no run was timed."""
    data_seconds: float | None
    samples_per_second: float | None
    tokens_per_second: float | None
    peak_resident_bytes: int | None
    """Maximum over ranks and runs, as are the next two."""
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    peaks_in_turns: bool | None = None
    """Whether the peaks are of runs that took turns with others; None without peaks."""
    activation_bytes: int | None = None
    """What autograd keeps of one micro-batch."""
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
    mhz = usual_mhz(results.runs)
    measured = [run for run in (timing or learning) if run.memory is not None]
    memory = [run.memory for run in measured if run.memory is not None]
    return CellSummary(
        label=label,
        cell=planned[0].cell,
        planned_runs=sum(run.kind is RunKind.TIMING for run in planned),
        used_runs=len(used),
        steady=bool(steady) if timed else None,
        set_aside_runs=sum(run.run.cell.label == label for run in results.set_aside),
        disturbed_runs={run.run.key: told for run in used if (told := disturbance(run, mhz))},
        step_seconds=_mean("step_seconds", used),
        p95_step_seconds=max((run.speed.p95_step_seconds for run in used if run.speed), default=None),
        p99_step_seconds=of_all((run.speed.p99_step_seconds for run in used if run.speed), max),
        within=_within([run.speed for run in used if run.speed is not None]),
        data_seconds=max((run.speed.median_data_seconds for run in used if run.speed), default=None),
        samples_per_second=_mean("samples_per_second", used),
        tokens_per_second=_mean("tokens_per_second", used),
        peak_resident_bytes=max((m.peak_resident_bytes for m in memory), default=None),
        peak_allocated_bytes=max((m.peak_allocated_bytes for m in memory if m.peak_allocated_bytes), default=None),
        peak_reserved_bytes=max((m.peak_reserved_bytes for m in memory if m.peak_reserved_bytes), default=None),
        peaks_in_turns=any(run.in_turns is not None for run in measured) if memory else None,
        activation_bytes=memory[0].activation_bytes if memory else None,
        shards=memory[0].shards if memory else [],
        in_force=facts.in_force if facts else None,
        tokens_definition=facts.workload.tokens_definition if facts and facts.workload else None,
        checkpoint_save_seconds=_median("checkpoint_save_seconds", every),
        checkpoint_load_seconds=_median("checkpoint_load_seconds", every),
        checkpoint_bytes=max((run.checkpoint_bytes for run in every if run.checkpoint_bytes), default=None),
        final_losses=[run.final_loss for run in learning if run.final_loss is not None],
    )


def _within(speeds: list[Speed]) -> WithinStep | None:
    if not speeds:
        return None
    return WithinStep(
        p50_step_seconds=statistics.median(speed.median_step_seconds for speed in speeds),
        forward_seconds=of_all((speed.median_forward_seconds for speed in speeds), statistics.median),
        backward_seconds=of_all((speed.median_backward_seconds for speed in speeds), statistics.median),
        optimizer_seconds=of_all((speed.median_optimizer_seconds for speed in speeds), statistics.median),
        skew_seconds=of_all((speed.median_skew_seconds for speed in speeds), statistics.median),
        mfu=of_all((speed.mfu for speed in speeds), statistics.median),
        hfu=of_all((speed.hfu for speed in speeds), statistics.median),
        joules_per_sample=of_all((speed.joules_per_sample for speed in speeds), statistics.median),
        built_steps=sum(len(speed.built_steps) for speed in speeds),
    )


def _mean(metric: str, runs: list[RunRecord]) -> float | None:
    figures = read(METRICS[metric], runs)
    return statistics.geometric_mean(figures) if figures and min(figures) > 0 else None


def _median(metric: str, runs: list[RunRecord]) -> float | None:
    figures = read(METRICS[metric], runs)
    return statistics.median(figures) if figures else None
