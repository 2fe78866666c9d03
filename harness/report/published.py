"""`harness compare --published`: what other people's tables show by their own counts, in sentences."""

from __future__ import annotations

from harness.compare.published import PublishedComparison
from harness.report.table import bullet, paragraph
from harness.report.verdicts import judgement_line


def spoken(found: PublishedComparison) -> str:
    """The claim, a line per verdict, and what the table cannot say. Ends with a newline."""
    table = found.table
    alike = [average.model for average in found.averages if average.equivalent]
    shown = [f"{d.model} in {d.task_suite}" for d in found.differences if d.shown]
    margin = f"±{100 * found.margin:g} percentage points"
    summary = [
        f"A change far outside chance: {', '.join(shown) or 'none'}.",
        f"Averages equivalent within {margin}: {', '.join(alike) or 'none'}.",
    ]
    if table.claim:
        summary.insert(0, f"Claim: {table.claim.words}.")
    limits = (
        f"Every row is one training run: a word on the backends themselves needs three training seeds or more. "
        f"Difference: {table.candidate_backend} minus {table.reference_backend} in percentage points with its "
        f"{found.confidence:.0%} interval, of independent episodes; p: exact, Holm over the table (suites) or the "
        f"models (averages)."
    )
    parts = [
        f"# {table.name}",
        paragraph(f"{table.source}. {table.conditions}."),
        "\n".join(bullet(line) for line in summary),
        "\n".join(bullet(judgement_line(judgement)) for judgement in found.judgements),
        paragraph(limits),
    ]
    return "\n\n".join(parts) + "\n"
