"""Plots of speed: throughput of each cell, speedups with their intervals, scaling over ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.compare.comparison import Comparison
from harness.compare.metrics import METRICS, read
from harness.compare.results import Results, ended_well, unique
from harness.compare.summary import CellSummary
from harness.compare.throughput import Speedup, counts
from harness.plan import Plan, RunKind, model_key
from harness.report.figures import number, pair, plural, ratio
from harness.report.plots.theme import Drawing, Margins, Theme, beside, legend, paper, style
from harness.statistics.interval import Interval
from harness.statistics.logscale import ratio_of
from harness.statistics.ratios import mean_interval
from harness.train.records import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATIO_INCHES = 1.5
"""Room for `1.25× [1.19–1.31]` beside the forest."""
FAR = 30.0
"""Bounds of a ratio are cut here: two runs at a strict rate reach astronomic ones."""


def throughput(comparison: Comparison, results: Results, theme: Theme) -> Drawing | None:
    """Samples per second of every timed cell: its runs, their geometric mean and Student's interval on the log scale.

    The mean is over the steady runs, or over all where none is, as in the table. None where no timing run ended well.
    """
    runs = {cell.label: ended_well(results.of(cell.label, RunKind.TIMING)) for cell in comparison.cells}
    runs = {label: found for label, found in runs.items() if _samples_per_second(found)}
    if not runs:
        return None
    figure, [ax] = paper(theme, 0.8 + 0.42 * len(runs), Margins(left=beside(runs)))
    models = unique(map(model_key, runs))
    words = []
    for row, (label, found) in enumerate(runs.items()):
        look = style(models.index(model_key(label)), theme)
        figures = _samples_per_second(found)
        used = _samples_per_second([r for r in found if counts(r)]) or figures
        centre = _geometric(used, comparison.confidence)
        ax.plot(figures, [row] * len(figures), "|", color=theme.muted, markersize=11)
        _whisker(ax, centre, row, str(look["color"]), str(look["marker"]))
        words.append(f"{label} {number(centre.estimate)} from {len(used)} of {plural(len(figures), 'run')}")
    _rows(ax, list(runs))
    ax.set_xlim(left=0)
    ax.set_xlabel(f"samples/s: every run (bars); their geometric mean, {comparison.confidence:.0%} interval")
    return Drawing("throughput", "Throughput", f"Samples per second by cell: {'; '.join(words)}.", figure)


def speedups(comparison: Comparison, plan: Plan, theme: Theme) -> Drawing | None:
    """Forest plot of step time against each reference; above 1 is faster. None without a comparable pair."""
    found = [s for s in comparison.speedups + comparison.other_speedups if s.speedup is not None and s.comparable]
    if not found:
        return None
    names = [pair(s.candidate, s.reference) for s in found]
    figure, [ax] = paper(theme, 0.9 + 0.42 * len(found), Margins(left=beside(names), right=RATIO_INCHES))
    margin = 1 + plan.gate.smallest_effect.step_seconds
    ax.axvspan(1 / margin, margin, color=theme.grid, zorder=0, label="smaller than what matters")
    ax.axvline(1.0, color=theme.muted, linewidth=1)
    ax.set_xscale("log")
    for row, speedup in enumerate(found):
        assert speedup.speedup is not None
        look = style(0 if speedup in comparison.speedups else 1, theme)
        _whisker(ax, speedup.speedup, row, str(look["color"]), str(look["marker"]))
        ax.annotate(
            ratio(speedup.speedup), (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=8,
            color=theme.ink,
        )  # fmt: skip
    _rows(ax, names)
    low, high = _limits(found, margin)
    ax.set_xlim(low, high)
    _plain_ratio_ticks(ax, low, high)
    ax.set_xlabel(f"times faster (reference's step time / cell's), {comparison.confidence:.0%} interval")
    legend(ax, theme, loc="lower right")
    words = "; ".join(f"{pair(s.candidate, s.reference)} {ratio(s.speedup)}, {s.finding}" for s in found)
    return Drawing("speedups", "Speedups", f"Speedup of each pair: {words}.", figure)


def scaling(comparison: Comparison, theme: Theme) -> Drawing | None:
    """Samples per second over ranks of cells alike in all else, beside the straight line from the fewest ranks.

    None unless some cell was timed at two numbers of ranks.
    """
    series = _by_ranks(comparison.cells)
    if not series:
        return None
    figure, [ax] = paper(theme, 3.6, Margins())
    words = []
    for place, (name, points) in enumerate(series.items()):
        ranks, speeds = list(points), list(points.values())
        look = style(place, theme)
        ax.plot(ranks, speeds, label=name, **look)  # type: ignore[arg-type]
        ideal = [speeds[0] * r / ranks[0] for r in ranks]
        ax.plot(ranks, ideal, color=theme.muted, linewidth=0.8, label="in proportion" if place == 0 else None)
        share = speeds[-1] / ideal[-1]
        words.append(f"{name} at {ranks[-1]} ranks {number(speeds[-1])}, {share:.0%} of proportion")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    every = sorted({r for points in series.values() for r in points})
    ax.set_xticks(every, [str(r) for r in every])
    ax.set_xlabel("ranks")
    ax.set_ylabel("samples/s")
    legend(ax, theme)
    return Drawing("scaling", "Scaling over ranks", f"Samples per second over ranks: {'; '.join(words)}.", figure)


def _samples_per_second(runs: list[RunRecord]) -> list[float]:
    return [figure for figure in read(METRICS["samples_per_second"], runs) if figure > 0]


def _geometric(figures: list[float], confidence: float) -> Interval:
    found = mean_interval([math.log(figure) for figure in figures], confidence)
    return found.model_copy(
        update={
            "estimate": ratio_of(found.estimate),
            "low": None if found.low is None else ratio_of(found.low),
            "high": None if found.high is None else ratio_of(found.high),
        }
    )


def _whisker(ax: Axes, interval: Interval, row: int, color: str, marker: str) -> None:
    """An estimate and its interval; bounds far outside are cut and end in an arrow. Without an interval: hollow."""
    whole = interval.low is not None and interval.high is not None
    if interval.low is not None and interval.high is not None:
        low = max(interval.low, interval.estimate / FAR)
        high = min(interval.high, interval.estimate * FAR)
        ax.plot([low, high], [row, row], color=color, linewidth=2)
        for cut, shape, at in ((interval.low < low, "<", low), (interval.high > high, ">", high)):
            if cut:
                ax.plot([at], [row], shape, color=color, markersize=6)
    ax.plot([interval.estimate], [row], marker, color=color, markersize=7, mfc=color if whole else "none")


def _rows(ax: Axes, names: list[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(False, axis="y")


def _limits(found: list[Speedup], margin: float) -> tuple[float, float]:
    values = [1 / margin, margin]
    for s in found:
        assert s.speedup is not None
        estimate = s.speedup.estimate
        values += [estimate, max(s.speedup.low or estimate, estimate / FAR)]
        values.append(min(s.speedup.high or estimate, estimate * FAR))
    return min(values) / 1.08, max(values) * 1.08


def _plain_ratio_ticks(ax: Axes, low: float, high: float) -> None:
    from matplotlib.ticker import NullFormatter

    candidates = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100)
    room = math.log(high / low) / 11  # what a label takes
    inside: list[float] = []
    for tick in sorted(candidates, key=lambda each: abs(math.log(each))):  # 1 first, then outwards
        if low <= tick <= high and all(abs(math.log(tick / other)) >= room for other in inside):
            inside.append(tick)
    ax.set_xticks(inside, [f"{tick:g}×" for tick in inside])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xticks([], minor=True)


def _by_ranks(cells: Iterable[CellSummary]) -> dict[str, dict[int, float]]:
    """Name of the cell with the fewest ranks → ranks → samples per second; only cells seen at two or more."""
    groups: dict[str, dict[int, CellSummary]] = {}
    for cell in cells:
        if cell.samples_per_second:
            groups.setdefault(cell.cell.digest(exclude={"label", "ranks"}), {})[cell.cell.ranks] = cell
    series = {}
    for group in groups.values():
        if len(group) > 1:
            ordered = [group[ranks] for ranks in sorted(group)]
            series[ordered[0].label] = {c.cell.ranks: c.samples_per_second for c in ordered if c.samples_per_second}
    return series
