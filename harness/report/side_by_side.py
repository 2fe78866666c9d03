"""Any two results beside each other: figures of the cells both have, success on the scenes both ran, what differs."""

from __future__ import annotations

from typing import NamedTuple

from harness.compare.gate import differing_fields
from harness.compare.metrics import METRICS, Metric, read
from harness.compare.results import Results, ended_well, unique
from harness.compare.success import PairedSuccess, paired_success
from harness.plan import Plan, RunKind
from harness.report.figures import MISSING, mib, milliseconds, number, points, ratio
from harness.report.table import Table, bullet, paragraph
from harness.statistics.independent import independent_ratio
from harness.statistics.interval import Interval

FAMILY_KINDS = {"time": RunKind.TIMING, "memory": RunKind.TIMING, "checkpoint": RunKind.LEARNING}


class Side(NamedTuple):
    """One of the two results."""

    plan: Plan
    results: Results


def side_by_side(first: Side, second: Side) -> str:
    """Markdown, ending with a newline. Nothing is judged: a baseline is for that."""
    titles = f"# {second.results.result_id} against {first.results.result_id}"
    apart = _plan_differences(first, second)
    parts = [
        titles,
        paragraph(
            "Independent processes of two results, perhaps of two days: what the machine did meanwhile is in the "
            "ratios. A verdict needs runs that took turns, or an accepted baseline."
        ),
        _figures(first, second).text(),
    ]
    rates = _success(first, second)
    if rates.rows:
        parts += ["## LIBERO success on the same scenes", rates.text()]
    parts += ["## What differs", "\n".join(bullet(line) for line in apart or ["Nothing that the records hold."])]
    return "\n\n".join(parts) + "\n"


def _figures(first: Side, second: Side) -> Table:
    confidence = second.plan.gate.confidence
    table = Table(
        ["Cell", "Metric", "First", "Second", "Second / first", "n"],
        reading="First, Second: geometric mean over fresh process groups, in ms or MiB; a dash where there is none. "
        f"Second / first: with Welch's {confidence:.0%} interval on the log scale, bold where it excludes 1; [–] below "
        "two processes a side. n: processes of each.",
        spare=("n",),
    )
    for label in unique([*first.results.labels(), *second.results.labels()]):
        for metric in METRICS.values():
            old, new = _read(metric, label, first), _read(metric, label, second)
            if not metric.gated or not (old or new):
                continue
            change = independent_ratio(old, new, confidence) if old and new else None
            table.add(
                label,
                metric.name,
                _shown(metric, old),
                _shown(metric, new),
                _bold_if_shown(change),
                f"{len(old)}, {len(new)}",
            )
    return table


def _read(metric: Metric, label: str, side: Side) -> list[float]:
    kind = FAMILY_KINDS[metric.family]
    return [figure for figure in read(metric, ended_well(side.results.of(label, kind))) if figure > 0]


def _shown(metric: Metric, figures: list[float]) -> str:
    if not figures:
        return MISSING
    mean = independent_ratio([1.0], figures).estimate
    return milliseconds(mean) if metric.unit == "s" else mib(mean) if metric.unit == "B" else number(mean)


def _bold_if_shown(change: Interval | None) -> str:
    text = ratio(change)
    return f"**{text}**" if change is not None and change.excludes(1.0) else text


def _success(first: Side, second: Side) -> Table:
    confidence = second.plan.gate.confidence
    table = Table(
        ["Arm", "Scenes", "Both", "1st only", "2nd only", "Neither", "Difference", "p"],
        reading="Episodes of the same arm, paired by scene; others are left out. Difference: second minus first in "
        f"percentage points, {confidence:.0%} interval. p: exact McNemar.",
        spare=("Both", "Neither"),
    )
    for arm in unique(e.arm for e in first.results.episodes):
        old = [e for e in first.results.episodes if e.arm == arm]
        new = [e for e in second.results.episodes if e.arm == arm]
        found = paired_success((arm, arm), [(old, new)], confidence) if new else []
        for pair in (p for p in found if p.task_suite == "all" and p.pairs.n):
            table.add(arm, *_counts(pair))
    return table


def _counts(pair: PairedSuccess) -> list[str]:
    found = pair.pairs
    counts = (found.n, found.both, found.only_reference, found.only_candidate, found.neither)
    return [*map(str, counts), points(pair.difference), f"{pair.p_value:.2g}"]


def _plan_differences(first: Side, second: Side) -> list[str]:
    """Settings of common cells, cells of one side only, hardware and software."""
    lines = []
    old = {run.cell.label: run.cell for run in reversed(first.plan.runs)}
    new = {run.cell.label: run.cell for run in reversed(second.plan.runs)}
    for label in unique([*old, *new]):
        if label not in old or label not in new:
            lines.append(f"{label}: only in the {'second' if label in new else 'first'}.")
        elif unlike := differing_fields(old[label].model_dump(mode="json"), new[label].model_dump(mode="json")):
            lines.append(f"{label}: {', '.join(unlike)}.")
    if first.results.runs and second.results.runs:
        before, after = (side.results.runs[-1].fingerprint.model_dump(mode="json") for side in (first, second))
        lines += [f"{field}." for field in differing_fields(before, after)]
    return lines
