"""Sections on success in LIBERO: ours, and what others published."""

from __future__ import annotations

from harness.compare.comparison import Comparison
from harness.compare.published import PublishedComparison, PublishedTable
from harness.compare.success import SEEDS_FOR_A_BACKEND, ArmSuccess, TaskSuiteRate
from harness.plan import Plan
from harness.report.figures import MISSING, pair, percent, points, ratio, signed
from harness.report.table import Table, bullet, paragraph
from harness.statistics.interval import Interval
from harness.statistics.proportions import wilson
from harness.task_suites import TaskSuite, in_order

TITLES: dict[TaskSuite, str] = {
    "libero_spatial": "Libero-Spatial",
    "libero_object": "Libero-Object",
    "libero_goal": "Libero-Goal",
    "libero_10": "Libero-10",
}


def success(comparison: Comparison, plan: Plan) -> str:
    """Rates of every arm, then learnt policies scene by scene."""
    if not plan.arms:
        return "## LIBERO success\n\nNo evaluation was planned."
    tables = [rates_table(comparison, plan), pairs_table(comparison)]
    return "\n\n".join(["## LIBERO success", *(table.text() for table in tables if table.rows)])


def rates_table(comparison: Comparison, plan: Plan) -> Table:
    """Success of every arm in the published form, of the task suites that were planned or played."""
    played = {rate.task_suite for arm in comparison.arms for rate in arm.rates}
    suites = in_order(played | {key.task_suite for key in plan.episodes})
    titles = {suite: suite for suite in suites} | {suite: title for suite, title in TITLES.items() if suite in suites}
    averaged = set(TITLES) <= set(suites)
    table = Table(
        ["Model", *titles.values(), *(["Average"] if averaged else [])],
        reading=f"Percent of valid episodes that succeed; below it successes/valid and the {comparison.confidence:.0%} "
        "Wilson interval. Errors and tasks the scripted expert has no skill for are in no rate."
        + (" Average: only where all four task suites have a rate." if averaged else ""),
        spare=("Average",),
    )
    for arm in comparison.arms:
        rates = {rate.task_suite: rate for rate in arm.rates}
        table.add(arm.arm, *(_rate(rates.get(suite)) for suite in suites), *([percent(arm.average)] * averaged))
        table.add("", *(_counts(rates.get(suite)) for suite in suites), *([""] * averaged))
        table.notes += _missing(arm)
    return table


def _rate(rate: TaskSuiteRate | None) -> str:
    return MISSING if rate is None or rate.rate is None else percent(rate.rate.estimate)


def _counts(rate: TaskSuiteRate | None) -> str:
    if rate is None or rate.rate is None or rate.rate.low is None or rate.rate.high is None:
        return ""
    return f"{rate.successes}/{rate.valid}, {100 * rate.rate.low:.0f}–{100 * rate.rate.high:.0f}"


def _missing(arm: ArmSuccess) -> list[str]:
    notes = []
    for rate in arm.rates:
        if rate.errors:
            notes.append(f"{arm.arm}, {rate.task_suite}: {rate.errors} ended in errors.")
        if rate.uncovered:
            notes.append(f"{arm.arm}, {rate.task_suite}: {rate.uncovered} not covered by the scripted expert.")
    if arm.recorded < arm.planned:
        notes.append(f"{arm.arm}: {arm.planned - arm.recorded} of {arm.planned} planned episodes were not run.")
    return notes


def pairs_table(comparison: Comparison) -> Table:
    """Learnt policies scene by scene; no rows where there is no pair."""
    table = Table(
        ["Pair", "Both", "1st only", "2nd only", "Neither", "Difference", "p"],
        reading="Episodes paired by scene, all task suites first. 1st: the reference, named after vs; 2nd: the "
        f"other. Difference: 2nd minus 1st in percentage points, {comparison.confidence:.0%} interval (Agresti–Min; "
        f"Student over seeds from {SEEDS_FOR_A_BACKEND} training seeds on). p: exact McNemar, not corrected for the "
        "number of rows.",
        spare=("Both", "Neither", "p"),
    )
    titles: dict[str, str] = dict(TITLES.items())
    for found in comparison.success_pairs:
        first = found.task_suite == "all"
        table.add(
            pair(found.candidate, found.reference) if first else f"· {titles[found.task_suite]}",
            str(found.pairs.both),
            str(found.pairs.only_reference),
            str(found.pairs.only_candidate),
            str(found.pairs.neither),
            points(found.difference),
            f"{found.p_value:.2g}",
        )
        name = pair(found.candidate, found.reference)
        if first and found.unpaired:
            table.notes.append(f"{name}: {found.unpaired} episodes have no partner on the same scene.")
        if first and found.training_seeds < SEEDS_FOR_A_BACKEND:
            table.notes.append(
                f"{name} compares these two checkpoints ({found.training_seeds} training seed each); a word on the "
                f"backends needs {SEEDS_FOR_A_BACKEND} or more."
            )
    return table


def published(comparison: Comparison) -> str:
    """Another machine's tables, with the intervals that their counts allow, and their claim beside ours."""
    parts = []
    for found in comparison.published:
        parts += [f"## Published on another machine: {found.table.name}", _claim(found.table, comparison)]
        parts += [table.text() for table in published_tables(found).values()]
    return "\n\n".join(parts)


def published_tables(found: PublishedComparison) -> dict[str, Table]:
    """Title → table: the rates as printed, and their differences with intervals."""
    name = found.table.name
    return {
        f"{name}: as published": _published_rates(found),
        f"{name}: differences": _published_differences(found),
    }


def _claim(table: PublishedTable, comparison: Comparison) -> str:
    lines = [f"Source: {table.source}. {table.conditions}."]
    if table.claim:
        lines.append(f"Claim: {table.claim.words} ({table.claim.conditions}).")
        backends = {cell.label: cell.cell.backend.backend for cell in comparison.cells}
        for s in comparison.speedups:
            if backends[s.candidate] != table.candidate_backend or backends[s.reference] != table.reference_backend:
                continue
            if s.speedup is None or not s.comparable:
                continue
            claimed = table.claim.least_speedup
            lines.append(
                f"Here, {pair(s.candidate, s.reference)}: {ratio(s.speedup)}; more than {claimed:.2f}× is "
                f"{_against_claim(claimed, s.speedup)} on this machine. That says nothing of theirs."
            )
    return "\n".join(bullet(line) for line in lines)


def _against_claim(claimed: float, ours: Interval) -> str:
    if ours.low is not None and ours.low > claimed:
        return "shown"
    return "ruled out" if ours.high is not None and ours.high < claimed else "neither shown nor ruled out"


def _published_rates(found: PublishedComparison) -> Table:
    source = found.table
    table = Table(
        ["Model", *TITLES.values(), "Average"],
        reading=f"Published success in percent of {source.episodes_per_task_suite} episodes per task suite, below it "
        f"the {found.confidence:.0%} Wilson interval from that count; averages as printed there.",
    )
    for row in source.rows:
        name = row.model if row.backend == source.reference_backend else f"{row.model}-{row.backend.upper()}"
        rates = [row.percent.get(suite) for suite in TITLES]
        table.add(name, *(MISSING if r is None else f"{r:.1f}" for r in rates), f"{row.average_percent:g}")
        counts = {suite: (source.count(row, suite), source.episodes_per_task_suite) for suite in row.percent}
        table.add("", *(_wilson(counts.get(suite), found.confidence) for suite in TITLES), "")
    return table


def _wilson(count: tuple[int, int] | None, confidence: float) -> str:
    if count is None:
        return ""
    interval = wilson(*count, confidence)
    assert interval.low is not None and interval.high is not None
    return f"{100 * interval.low:.1f}–{100 * interval.high:.1f}"


def _published_differences(found: PublishedComparison) -> Table:
    table = Table(
        ["Difference", *TITLES.values()],
        reading=f"{found.table.candidate_backend} minus {found.table.reference_backend} in percentage points, with "
        f"Newcombe's {found.confidence:.0%} interval. Bold: more than chance among episodes (Fisher's exact "
        "test, Holm over the table). One training run per row: seeds are not in it.",
    )
    for model in dict.fromkeys(d.model for d in found.differences):
        cells = {d.task_suite: d for d in found.differences if d.model == model}
        row = []
        for suite in TITLES:
            d = cells.get(suite)
            text = MISSING if d is None else points(d.difference)
            row.append(f"**{text}**" if d is not None and d.shown else text)
        table.add(model, *row)
    shown = [d for d in found.differences if d.shown]
    table.notes += [
        f"{d.model}, {TITLES[d.task_suite]}: {d.reference_successes} → {d.candidate_successes} of {d.n}, "
        f"{signed(d.difference.estimate)} points: far outside chance among episodes, so not the same level (adjusted p "
        f"{d.adjusted_p:.1g})."
        for d in shown
    ]
    return table


def controls(comparison: Comparison) -> str:
    lines = [bullet(f"{j.subject}: {j.reason}.") for j in comparison.judgements if j.question == "control"]
    return paragraph("Controls:") + "\n\n" + "\n".join(lines) if lines else ""
