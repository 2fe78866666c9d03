"""The answers in sentences: what won, by how much, how sure, at which memory, and whether success is kept."""

from __future__ import annotations

from collections import Counter

from harness.compare.comparison import Comparison
from harness.compare.family import OverallSpeedup
from harness.compare.summary import CellSummary
from harness.compare.throughput import Speedup
from harness.compare.verdict import Judgement, Verdict
from harness.errors import ExitCode
from harness.report.figures import MISSING, alarm_rate, detectable, effect, measured, mib, pair, plural, ratio
from harness.report.table import Table

OUTCOMES = {
    ExitCode.OK: "everything asked is shown",
    ExitCode.REGRESSED: "something got worse",
    ExitCode.NOT_SHOWN: "not everything asked is shown",
    ExitCode.FAILED: "something failed",
}
GOOD = (Verdict.PASS, Verdict.IMPROVED)


def outcome(comparison: Comparison) -> str:
    """`Exit code 11: not everything asked is shown.`"""
    return f"Exit code {int(comparison.exit_code)}: {OUTCOMES[comparison.exit_code]}."


def peak_bytes(cell: CellSummary) -> int | None:
    """Allocated on CUDA, else the resident set; a report never mixes the two."""
    return cell.peak_allocated_bytes if cell.peak_allocated_bytes is not None else cell.peak_resident_bytes


def speed_lines(comparison: Comparison) -> list[str]:
    """Every judgement of speed as a sentence."""
    speedups = {f"{s.candidate} vs {s.reference}": s for s in comparison.speedups}
    return [
        speed_sentence(judged, speedups[judged.subject], comparison)
        if judged.subject in speedups
        else judgement_line(judged)
        for judged in of(comparison, "speed")
    ] + [overall_sentence(found) for found in comparison.overall_speedups]


def overall_sentence(found: OverallSpeedup) -> str:
    """One figure over several models."""
    models = ", ".join(found.models)
    return (
        f"Speed over {len(found.models)} models ({models}), {found.candidate} vs {found.reference}: "
        f"{ratio(found.speedup)}, geometric mean over {plural(found.speedup.n, 'repeat')}."
    )


def speed_sentence(judgement: Judgement, speedup: Speedup, comparison: Comparison) -> str:
    """One judged speedup with its memory, what the test could see, and its reservations."""
    name = pair(speedup.candidate, speedup.reference)
    head = f"`{judgement.verdict}` Speed, {name}"
    if speedup.speedup is None or not speedup.comparable:
        return f"{head}: {judgement.reason}."
    cells = {cell.label: cell for cell in comparison.cells}
    new, old = peak_bytes(cells[speedup.candidate]), peak_bytes(cells[speedup.reference])
    memory = f"; peak memory {mib(new)} against {mib(old)} MiB" if new and old else ""
    used = plural(speedup.speedup.n, "pair")
    text = f"{head}: {ratio(speedup.speedup)} ({used}), {judgement.reason}{memory}. {_sight(judgement)}"
    return f"{text} Reserved: {', '.join(speedup.reservations)}." if speedup.reservations else text


def _sight(judgement: Judgement) -> str:
    return f"Smallest detectable {detectable(judgement)}, false alarms {alarm_rate(judgement)}, n = {judgement.n}."


def judgement_line(judgement: Judgement) -> str:
    """Verdict, subject, value and reference, effect, reason, and what the test could see."""
    head = f"`{judgement.verdict}` {judgement.subject}, {judgement.metric}:"
    if judgement.effect is None:
        return f"{head} {judgement.reason}."
    sides = measured(judgement)
    values = f"{sides}, " if sides else ""
    return f"{head} {values}{effect(judgement)}; {judgement.reason}. {_sight(judgement)}"


def counts(judgements: list[Judgement]) -> str:
    """`3 PASS, 1 INCONCLUSIVE`, worst last."""
    found = Counter(judgement.verdict for judgement in judgements)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in Verdict if found[verdict])


def of(comparison: Comparison, *questions: str) -> list[Judgement]:
    return [judgement for judgement in comparison.judgements if judgement.question in questions]


def regressions(comparison: Comparison) -> list[Judgement]:
    """What got worse since the baseline."""
    return [judgement for judgement in of(comparison, "baseline") if judgement.verdict is Verdict.REGRESSED]


def verdict_table(comparison: Comparison) -> Table:
    """Every question, its answer, and what the test behind it could see."""
    table = Table(
        ["Subject", "Question", "Metric", "Verdict", "Effect", "Detectable", "n"],
        reading="Effect: a ratio (speed: above 1 is faster; baseline: new over accepted) or a difference in percentage "
        "points (pp), with its interval. Detectable: the smallest effect seen with 90% probability. n: pairs, "
        "processes or episodes. Whatever is not PASS or IMPROVED says why below.",
        spare=("n", "Metric", "Detectable"),
    )
    for judgement in comparison.judgements:
        table.add(
            judgement.subject,
            judgement.question,
            judgement.metric,
            judgement.verdict,
            effect(judgement) if judgement.effect else MISSING,
            detectable(judgement),
            str(judgement.n) if judgement.n else MISSING,
        )
        if judgement.verdict not in GOOD:
            table.notes.append(f"{judgement.subject}, {judgement.metric}: {judgement.reason}.")
    return table
