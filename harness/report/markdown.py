"""`report.md`: verdicts first, then the tables they stand on, then how to get them again."""

from __future__ import annotations

from harness.compare.comparison import Comparison
from harness.compare.results import Results
from harness.plan import Plan
from harness.report import evaluation, provenance, training
from harness.report.answers import answers
from harness.report.table import bullet, paragraph
from harness.report.trends import trends
from harness.report.verdicts import GOOD, counts, judgement_line, of, outcome, speed_lines


def render(comparison: Comparison, plan: Plan, results: Results) -> str:
    """The whole report as Markdown, tables at most 100 columns wide, ending with a newline.

    A pure function: the same records give the same text.
    """
    sections = [
        f"# {plan.suite} on {plan.hardware_key}",
        _verdicts(comparison),
        training.speed(comparison, plan),
        training.memory(comparison) if comparison.cells else "",
        training.fairness(comparison),
        evaluation.success(comparison, plan),
        evaluation.controls(comparison),
        training.checkpoints(comparison) if comparison.cells else "",
        provenance.baseline(comparison, plan),
        trends(comparison.trends),
        evaluation.published(comparison),
        provenance.failures(results),
        provenance.left_out(results),
        provenance.command(plan, results),
        provenance.configuration(plan),
        provenance.machine(results),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _verdicts(comparison: Comparison) -> str:
    """What won, how sure, at which memory, is success kept; then all else that is neither PASS nor IMPROVED."""
    lines = speed_lines(comparison)
    lines += [judgement_line(judgement) for judgement in of(comparison, "success")]
    for name, questions in (
        ("Fair comparison and sharding", ("fairness", "sharding")),
        ("Loss parity", ("parity",)),
        ("Controls", ("control",)),
        ("Baseline", ("baseline",)),
        ("Runs", ("run",)),
    ):
        if found := of(comparison, *questions):
            lines.append(f"{name}: {counts(found)}.")
    told = answers(comparison)
    parts = ["## Verdicts", paragraph(outcome(comparison)), "\n".join(bullet(line) for line in told)]
    parts += ["In full:" if told else "", "\n".join(bullet(line) for line in lines)]
    elsewhere = ("speed", "success", "baseline")  # baselines have a table of their own
    bad = [j for j in comparison.judgements if j.question not in elsewhere and j.verdict not in GOOD]
    if bad:
        parts += ["Not shown, or wrong:", "\n".join(bullet(judgement_line(j)) for j in bad)]
    return "\n\n".join(part for part in parts if part)
