"""Pinned beside rolling, and since when: a reading aid under the baseline's verdicts."""

from __future__ import annotations

from harness.compare.metrics import METRICS
from harness.compare.trend import LEAST, ROLLING, Trend
from harness.report.figures import MISSING, ratio, shown_value
from harness.report.table import Table


def trends(found: list[Trend]) -> str:
    """The section; empty where a suite has one result only."""
    return f"## Against earlier results\n\n{trend_table(found).text()}" if found else ""


def trend_table(found: list[Trend]) -> Table:
    table = Table(
        ["Cell", "Metric", "Latest", "vs baseline", "vs rolling", "Results"],
        reading=f"vs baseline: over the accepted values, which stay. vs rolling: over the {ROLLING} results before (at "
        f"least {LEAST}), with a prediction interval. A slow drift shows in the first and hides in the second. Change "
        "points (PELT) are named below. No verdict hangs on this table.",
        spare=("Results",),
    )
    for trend in found:
        pinned = MISSING if trend.pinned is None else f"{trend.pinned:.2f}×"
        latest = shown_value(METRICS[trend.metric], trend.latest)
        table.add(trend.subject, trend.metric, latest, pinned, ratio(trend.rolling), str(trend.results))
        for change in trend.changes:
            old, new = (shown_value(METRICS[trend.metric], value) for value in (change.before, change.after))
            table.notes.append(
                f"{trend.subject}, {trend.metric}: {old} before, {new} from {change.result} on ({change.at[:10]})."
            )
    return table
