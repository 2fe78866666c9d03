"""The comparison on one terminal screen: at most 80 columns and 24 lines."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.compare.comparison import Comparison
from harness.compare.results import unique
from harness.compare.throughput import Finding, Speedup
from harness.compare.verdict import Judgement, Verdict
from harness.errors import ExitCode
from harness.report.answers import success_line
from harness.report.figures import MISSING, again_effect, effect, mib, milliseconds, number, speedup_text
from harness.report.verdicts import counts, of, outcome, peak_bytes, regressions

MOST_CELLS, MOST_ARMS, MOST_FAULTS = 6, 4, 2
STYLES = {ExitCode.OK: "green", ExitCode.REGRESSED: "bold red", ExitCode.FAILED: "red", ExitCode.NOT_SHOWN: "yellow"}


def show(comparison: Comparison, console: Console) -> None:
    """Prints speed, memory, success and verdicts; the report has the rest."""
    _line(console, outcome(comparison), STYLES[comparison.exit_code])
    if comparison.cells:
        console.print(_cells(comparison))
    for arm in comparison.arms[:MOST_ARMS]:
        rates = (f"{r.task_suite.removeprefix('libero_')} {r.successes}/{r.valid}" for r in arm.rates if r.valid)
        _line(console, f"{arm.arm}: {', '.join(rates) or MISSING}")
    for found in [p for p in comparison.success_pairs if p.task_suite == "all"][:1]:
        _line(console, success_line(found, comparison))
    _verdict_lines(comparison, console)
    _line(console, f"harness report {comparison.result}", "dim")


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), no_wrap=True, overflow="ellipsis", soft_wrap=False)


def _cells(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("cell", no_wrap=True)
    for name in ("step ms", "samples/s", "peak MiB", "speedup", "shown"):
        table.add_column(name, justify="right", no_wrap=True)
    speedups = {s.candidate: s for s in comparison.speedups}
    references = unique(s.reference for s in comparison.speedups)
    for cell in comparison.cells[:MOST_CELLS]:
        table.add_row(
            cell.label,
            milliseconds(cell.step_seconds),
            number(cell.samples_per_second),
            mib(peak_bytes(cell)),
            "reference" if cell.label in references else speedup_text(speedups.get(cell.label)),
            _finding(speedups.get(cell.label)),
        )
    left = len(comparison.cells) - MOST_CELLS
    if left > 0:
        table.add_row(f"… {left} more in the report")
    return table


def _finding(speedup: Speedup | None) -> str:
    """`faster`, where that is shown."""
    known = speedup is not None and speedup.comparable and speedup.finding is not Finding.NOT_SHOWN
    return str(speedup.finding) if speedup is not None and known else MISSING


def _verdict_lines(comparison: Comparison, console: Console) -> None:
    for name, questions in (
        ("speed", ("speed",)),
        ("fair, same loss", ("fairness", "sharding", "parity")),
        ("success", ("success", "control")),
        ("baseline", ("baseline",)),
    ):
        judged = of(comparison, *questions)
        if judged:
            explained = f"; speedup: with its {comparison.confidence:.0%} interval" if name == "speed" else ""
            _line(console, f"{name}: {counts(judged)}{explained}")
    faults: list[Judgement] = regressions(comparison) + of(comparison, "run")
    for judgement in faults[:MOST_FAULTS]:
        _line(console, _fault(judgement), "red")
    if len(faults) > MOST_FAULTS:
        _line(console, f"… {len(faults) - MOST_FAULTS} more in the report", "red")


def _fault(judgement: Judgement) -> str:
    head = f"{judgement.verdict} {judgement.subject}"
    if judgement.verdict is not Verdict.REGRESSED:
        return f"{head}: {judgement.reason}"
    again = again_effect(judgement)
    return f"{head} {judgement.metric}: {effect(judgement)}{f', again {again}' if again else ''}"
