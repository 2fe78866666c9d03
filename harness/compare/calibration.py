"""How much do like runs differ on this machine, and how many does each effect need here?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from harness.compare.gated import gated_metrics, gated_values, reference_runs
from harness.compare.results import Results, ended_well, unique
from harness.plan import RunKind
from harness.records import Record, Value
from harness.statistics.power import processes_needed
from harness.statistics.prediction import Spread, pooled_spread

EFFECTS = (0.01, 0.02, 0.03, 0.05, 0.10, 0.20)
"""Relative changes for which the repeats are stated."""


class Needed(Value):
    """Fresh processes for one effect."""

    effect: float
    """Relative."""
    processes: int | None
    """In the baseline and in a night alike; None: no number up to 1000 would do."""


class Noise(Value):
    """One metric of one cell over all stored runs without a plant."""

    cell: str
    metric: str
    processes: int
    results: int
    centre: float
    """Geometric mean, in the metric's unit."""
    within: Spread | None
    """Of processes of the same result; None when no result has two."""
    between_sd: float | None
    """Standard deviation of the log between results, beyond what `within` explains; None below two results."""
    log_sd: float | None
    """Of one process's figure on any night: both together."""
    needed: list[Needed]


class Calibration(Record):
    """`calibration.json`: this machine's own noise for one suite."""

    suite: str
    hardware_key: str
    false_alarm_rate: float
    tests: int
    """Figures judged together; each is tested at the rate divided by this."""
    results: list[str]
    noise: list[Noise]
    run_noise: float | None
    """For `gate.run_noise`: standard deviation of the log ratio of two like runs' step times, over all cells."""


def calibrate(
    suite: str, hardware_key: str, false_alarm_rate: float, found: Sequence[Results], reference: str | None = None
) -> Calibration:
    """Reads the noise off results of the same cells on the same machine. Planted runs are left out.

    Args:
        reference: the suite's reference backend, for step times over its own.
    """
    clean = [results for results in found if not any(run.run.planted for run in results.runs)]
    labels = unique(label for results in clean for label in results.labels(RunKind.TIMING))
    metrics = [metric for metric in gated_metrics(RunKind.TIMING) if not metric.exact]
    tests = max(1, len(labels) * len(gated_metrics(RunKind.TIMING)))
    noise = []
    for label in labels:
        for metric in metrics:
            groups = [
                gated_values(metric, ended_well(r.of(label, RunKind.TIMING)), reference_runs(label, reference, r.runs))
                for r in clean
            ]
            groups = [group for group in groups if group]
            if groups:
                noise.append(_noise(label, metric.name, groups, false_alarm_rate / tests))
    steps = [n.log_sd for n in noise if n.metric == "step_seconds" and n.log_sd is not None]
    return Calibration(
        suite=suite,
        hardware_key=hardware_key,
        false_alarm_rate=false_alarm_rate,
        tests=tests,
        results=[results.result_id for results in clean],
        noise=noise,
        run_noise=math.sqrt(2 * statistics.fmean(sd**2 for sd in steps)) if steps else None,
    )


def _noise(label: str, metric: str, groups: list[list[float]], alpha: float) -> Noise:
    values = [value for group in groups for value in group]
    within, between = pooled_spread(groups), _between(groups)
    parts = [sd for sd in (within.log_sd if within else None, between) if sd is not None]
    log_sd = math.hypot(*parts) if parts else None
    return Noise(
        cell=label,
        metric=metric,
        processes=len(values),
        results=len(groups),
        centre=statistics.geometric_mean(values),
        within=within,
        between_sd=between,
        log_sd=log_sd,
        needed=[
            Needed(effect=effect, processes=None if log_sd is None else processes_needed(1 + effect, log_sd, alpha))
            for effect in EFFECTS
        ],
    )


def _between(groups: list[list[float]]) -> float | None:
    """Between-group standard deviation of a one-way random-effects model, by moments (Searle, Casella and McCulloch
    1992, section 3.6); a negative variance is 0."""
    if len(groups) < 2:
        return None
    logs = [[math.log(value) for value in group] for group in groups]
    sizes = [len(group) for group in logs]
    total = sum(sizes)
    centre = math.fsum(x for group in logs for x in group) / total
    means = [math.fsum(group) / len(group) for group in logs]
    square = math.fsum(n * (mean - centre) ** 2 for n, mean in zip(sizes, means, strict=True)) / (len(groups) - 1)
    within = pooled_spread(groups)
    weight = (total - sum(n * n for n in sizes) / total) / (len(groups) - 1)
    return math.sqrt(max(0.0, square - (within.log_sd**2 if within else 0.0)) / weight)
