"""Accepted baselines in the terminal: what is in them, what a result would change, and what was done to them."""

from __future__ import annotations

import statistics

from rich.table import Table

from harness.compare.baseline import Baseline, Entry
from harness.compare.changes import Change
from harness.compare.metrics import METRICS
from harness.report.figures import MISSING, percent, plural, shown_value, signed


def baseline_table(baseline: Baseline) -> Table:
    """One row per cell or arm, with its processes or episodes and its state; the latest act as the caption."""
    latest = baseline.history[-1]
    table = Table(
        title=f"{baseline.suite} on {baseline.hardware_key}",
        caption=f"{latest.at} {latest.by}: {latest.reason} ({latest.result or latest.act})",
        box=None,
    )
    for name in ("subject", "kind", "holds", "accepted", "state"):
        table.add_column(name)
    for cell in baseline.cells:
        held = ", ".join(f"{name} × {len(values)}" for name, values in cell.values.items())
        table.add_row(cell.subject, cell.kind, held, cell.accepted_at[:10], _state(baseline, cell))
    for arm in baseline.arms:
        successes, valid = sum(c.successes for c in arm.counts), sum(c.valid for c in arm.counts)
        held = f"{successes}/{valid} in {len(arm.counts)} tasks, {arm.protocol.name}"
        table.add_row(arm.subject, "episodes", held, arm.accepted_at[:10], _state(baseline, arm))
    return table


def _state(baseline: Baseline, entry: Entry) -> str:
    if not baseline.intact(entry):
        return "changed by hand"
    return f"ended: {entry.expired.reason}" if entry.expired else "in force"


def history_table(baseline: Baseline) -> Table:
    """Everything that was done to a baseline, oldest first."""
    table = Table(title=f"{baseline.suite} on {baseline.hardware_key}", box=None)
    for name in ("when", "who", "what", "subjects", "result", "commit", "why"):
        table.add_column(name)
    for act in baseline.history:
        commit = act.commit[:10] if act.commit else MISSING
        table.add_row(act.at, act.by, act.act, ", ".join(act.subjects), act.result or MISSING, commit, act.reason)
    return table


def changes_table(changes: list[Change]) -> Table:
    """What accepting a result would do to a baseline, entry by entry."""
    table = Table(box=None)
    for name in ("subject", "what", "act", "old", "new", "change"):
        table.add_column(name)
    for change in changes:
        table.add_row(
            change.subject,
            change.metric,
            change.act,
            _values(change, change.old),
            _values(change, change.new),
            _moved(change),
        )
    return table


def _values(change: Change, values: list[float]) -> str:
    if not values:
        return MISSING
    metric = METRICS.get(change.metric.split(" ")[-1])
    if metric is None:
        return f"{percent(statistics.mean(values))}% ({plural(len(values), 'task')})"
    return f"{shown_value(metric, _centre(values))} (n = {len(values)})"


def _centre(values: list[float]) -> float:
    return statistics.geometric_mean(values) if min(values) > 0 else statistics.mean(values)


def _moved(change: Change) -> str:
    if change.differs:
        return ", ".join(change.differs)
    if not change.old or not change.new or _centre(change.old) == 0:
        return MISSING
    return f"{signed(_centre(change.new) / _centre(change.old) - 1)}%"
