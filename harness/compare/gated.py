"""Which figures of which runs are held against a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.compare.metrics import METRICS, Metric, read
from harness.compare.results import Results
from harness.compare.throughput import STEADY, pair_runs, steady_pair
from harness.libero.records import ArmRecord
from harness.plan import RunKind, model_key
from harness.suite import CONTROLS, blinding_of
from harness.train.records import RunRecord

KINDS = {"time": RunKind.TIMING, "memory": RunKind.TIMING, "checkpoint": RunKind.LEARNING}
"""Which kind of run a metric's family is taken from."""


def learnt_arms(results: Results) -> list[ArmRecord]:
    """Arms worth a baseline. Controls are held to fixed rates instead."""
    return [record for record in results.arms if record.arm not in CONTROLS and blinding_of(record.arm) is None]


def gated_values(metric: Metric, runs: list[RunRecord], reference: Sequence[RunRecord] = ()) -> list[float]:
    """Positive figures of the runs that may stand for the cell; step times of unsteady runs may not.

    Args:
        reference: runs of the suite's reference cell, for paired metrics.
    """
    if metric.paired:
        return _ratios(runs, reference)
    usable = [run for run in runs if metric.family != "time" or (run.speed and run.speed.steadiness == STEADY)]
    return [figure for figure in read(metric, usable) if figure > 0]


def _ratios(runs: list[RunRecord], reference: Sequence[RunRecord]) -> list[float]:
    pairs = [(a, b) for a, b in pair_runs(list(reference), runs) if a is not b and steady_pair(a, b)]
    read_step = METRICS["step_seconds"].read
    figures = [(read_step(a), read_step(b)) for a, b in pairs]
    return [new / old for old, new in figures if old and new]


def reference_runs(label: str, reference: str | None, runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Timing runs of the cell that `label` is compared with; none for the reference cell itself.

    Args:
        reference: the plan's reference, a backend key.
    """
    wanted = f"{model_key(label)}-{reference}"
    if reference is None or wanted == label:
        return []
    return [run for run in runs if (run.run.cell.label, run.run.kind) == (wanted, RunKind.TIMING)]


def gated_metrics(kind: RunKind) -> list[Metric]:
    return [metric for metric in METRICS.values() if metric.gated and KINDS[metric.family] is kind]
