"""What fills the memory of a rank, by kind."""

from __future__ import annotations

from typing import NamedTuple

from harness.compare.comparison import Comparison
from harness.compare.results import Results
from harness.compare.summary import CellSummary
from harness.report.figures import mib
from harness.report.plots.theme import Drawing, Margins, Theme, beside, legend, paper
from harness.report.verdicts import peak_bytes

MIB = 2**20
HATCHES = ("", "//", "--", "\\\\")


class _Parts(NamedTuple):
    parameters: float
    gradients: float
    optimizer: float
    rest: float


def memory(comparison: Comparison, results: Results, theme: Theme) -> Drawing | None:
    """The largest rank's peak, split into what it holds between steps and the rest. None without a peak.

    The rest is activations, buffers and, for a resident set, libraries. The device's size is a line where the bars
    come near it, and else a share at their end.
    """
    cells = [cell for cell in comparison.cells if peak_bytes(cell)]
    if not cells:
        return None
    parts = [_parts(cell) for cell in cells]
    cuda = any(cell.peak_allocated_bytes is not None for cell in cells)
    figure, [ax] = paper(theme, 1.1 + 0.45 * len(cells), Margins(left=beside(c.label for c in cells), top=0.4))
    names = ("parameters", "gradients", "optimizer", "rest: activations, buffers" + ("" if cuda else ", libraries"))
    left = [0.0] * len(cells)
    for kind, name in enumerate(names):
        widths = [part[kind] / MIB for part in parts]
        ax.barh(
            range(len(cells)), widths, left=left, height=0.62, label=name, color=theme.series[kind],
            hatch=HATCHES[kind], edgecolor=theme.paper, linewidth=0.8,
        )  # fmt: skip
        left = [a + b for a, b in zip(left, widths, strict=True)]
    device = None if cuda else _machine_bytes(results)
    for row, cell in enumerate(cells):
        share = f" ({(peak_bytes(cell) or 0) / device:.1%} of the machine)" if device else ""
        ax.annotate(
            f"{mib(peak_bytes(cell))} MiB{share}", (left[row], row), xytext=(4, 0), textcoords="offset points",
            va="center", fontsize=8, color=theme.ink,
        )  # fmt: skip
    if device and device / MIB < 2 * max(left):
        ax.axvline(device / MIB, color=theme.ink, linestyle="--", linewidth=1, label="the machine's memory")
    ax.set_yticks(range(len(cells)), [cell.label for cell in cells])
    ax.set_ylim(len(cells) - 0.4, -0.6)
    ax.set_xlim(0, max(left) * 1.42)
    ax.grid(False, axis="y")
    ax.set_xlabel("MiB, the largest rank's " + ("allocator peak" if cuda else "resident-set peak") + " after warm-up")
    legend(ax, theme, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    words = "; ".join(f"{cell.label} {mib(peak_bytes(cell))} MiB" for cell in cells)
    return Drawing("memory", "Memory", f"Peak memory by cell: {words}.", figure)


def _parts(cell: CellSummary) -> _Parts:
    held = (
        max((s.parameter_bytes for s in cell.shards), default=0),
        max((s.gradient_bytes for s in cell.shards), default=0),
        max((s.optimizer_bytes for s in cell.shards), default=0),
    )
    return _Parts(*held, max(0, (peak_bytes(cell) or 0) - sum(held)))


def _machine_bytes(results: Results) -> int | None:
    return results.runs[-1].fingerprint.memory_bytes if results.runs else None
