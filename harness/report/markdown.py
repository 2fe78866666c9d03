"""`report.md`: verdicts first, then the tables they stand on, then how to get them again."""

from __future__ import annotations

from harness.compare.comparison import Comparison
from harness.compare.results import Results
from harness.compare.verdict import Judgement
from harness.machine import Fingerprint
from harness.plan import Plan
from harness.report import evaluation, provenance, training
from harness.report.table import bullet, paragraph
from harness.report.verdicts import GOOD, counts, judgement_line, of, outcome, speed_sentence


def render(comparison: Comparison, plan: Plan, results: Results, machine: Fingerprint) -> str:
    """The whole report as Markdown, tables at most 100 columns wide, ending with a newline.

    A pure function: the same records give the same text.

    Args:
        machine: where the report's figures were measured.
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
        evaluation.published(comparison),
        provenance.failures(results),
        provenance.command(plan, results),
        provenance.configuration(plan),
        provenance.machine(machine),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _verdicts(comparison: Comparison) -> str:
    """One line per question, then every verdict that is neither PASS nor IMPROVED with its reason."""
    parts = ["## Verdicts", paragraph(outcome(comparison))]
    lines = [f"Speed, {speed_sentence(speedup, comparison)}" for speedup in comparison.speedups]
    for name, questions in (
        ("Fair comparison and sharding", ("fairness", "sharding")),
        ("Loss parity", ("parity",)),
        ("LIBERO success", ("success",)),
        ("Controls", ("control",)),
        ("Baseline", ("baseline",)),
        ("Runs", ("run",)),
    ):
        judged = of(comparison, *questions)
        if judged:
            lines.append(f"{name}: {counts(judged)}.")
    parts.append("\n".join(bullet(line) for line in lines))
    told = [j for j in comparison.judgements if j.question in ("speed", "success")]
    bad = [j for j in comparison.judgements if j not in told and j.verdict not in GOOD and not _told_below(j)]
    if told:
        parts += ["How sure:", "\n".join(bullet(judgement_line(j)) for j in told)]
    if bad:
        parts += ["Not shown, or wrong:", "\n".join(bullet(judgement_line(j)) for j in bad)]
    return "\n\n".join(parts)


def _told_below(judgement: Judgement) -> bool:
    return judgement.question == "baseline"  # it has a table of its own
