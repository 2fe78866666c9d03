"""The latest result of a suite beside its baseline and beside the results before it."""

from __future__ import annotations

import statistics

from harness.compare.baseline import Baseline
from harness.compare.gated import gated_metrics
from harness.compare.results import unique
from harness.compare.throughput import STEADY
from harness.compare.trend import Point, Trend, trend
from harness.history import History, PastRun
from harness.plan import Plan, RunKind
from harness.train.records import Outcome


def trends(history: History, plan: Plan, baseline: Baseline | None, latest: str) -> list[Trend]:
    """Every gated figure of every timed cell of the plan, up to and with the result named `latest`.

    Only runs of this machine and of the same work count: model, size, backend, stack, precision, ranks and batch.
    """
    found = []
    for label in unique(run.cell.label for run in plan.runs if run.kind is RunKind.TIMING):
        runs = [run for run in history.runs if _of(run, label, plan) and run.result <= latest]
        newest = next((run for run in reversed(runs) if run.result == latest), None)
        if newest is None:
            continue
        like = [run for run in runs if _work(run) == _work(newest)]
        accepted = baseline.cell(label, RunKind.TIMING) if baseline else None
        for metric in gated_metrics(RunKind.TIMING):
            usable = [run for run in like if metric.family != "time" or run.steadiness == STEADY]
            values = accepted.values.get(metric.name, []) if accepted else []
            read = trend(label, metric.name, _points(usable, metric.name), values, plan.gate.confidence)
            if read is not None and read.results > 1:
                found.append(read)
    return found


def _of(run: PastRun, label: str, plan: Plan) -> bool:
    mine = (run.cell, run.kind, run.hardware_key) == (label, RunKind.TIMING, plan.hardware_key)
    return mine and run.outcome == Outcome.OK


def _work(run: PastRun) -> tuple[object, ...]:
    return (run.model, run.size, run.backend, run.stack, run.precision, run.ranks, run.samples_per_step)


def _points(runs: list[PastRun], metric: str) -> list[Point]:
    by_result: dict[str, list[PastRun]] = {}
    for run in runs:
        if run.figures.get(metric, 0.0) > 0:
            by_result.setdefault(run.result, []).append(run)
    return [
        Point(
            result=result,
            at=min(run.started_at for run in mine),
            value=statistics.geometric_mean(run.figures[metric] for run in mine),
        )
        for result, mine in by_result.items()
    ]
