"""A figure over the results of a suite: each result's level, its verdict, and where the level changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.compare.gated import KINDS
from harness.compare.metrics import METRICS
from harness.compare.throughput import STEADY
from harness.history import History
from harness.report.figures import number, plural
from harness.report.plots.theme import Drawing, Margins, Theme, entitle, legend, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CELLS = 6
_MOST_TICKS = 8
_CROWDED = 100
"""Results beyond which the marks are small."""
VERDICT_LOOKS = {"PASS": ("o", 2), "IMPROVED": ("^", 0), "REGRESSED": ("v", 1), "FAILED": ("X", 3)}
"""Marker, and place among the theme's series. Any other verdict, or none, is a hollow circle: nothing was shown."""


def over_results(
    past: History, theme: Theme, metric: str = "step_seconds", changes: Mapping[str, list[str]] | None = None
) -> Drawing | None:
    """One panel per cell over its results, oldest first. None unless some cell was measured in two results.

    Args:
        past: of one suite.
        metric: a key of `METRICS`.
        changes: cell → ids of the results at which its level changed; a reading aid, never a verdict.
    """
    cells = levels(past, metric)
    if not cells:
        return None
    results = [result for result in past.results if any(result in found for found in cells.values())]
    place = {result: at for at, result in enumerate(results)}
    verdicts = {
        (v.subject, v.result): v.verdict for v in past.verdicts if v.question == "baseline" and v.metric == metric
    }
    figure, axes = paper(theme, 1.2 + 1.4 * len(cells), Margins(top=0.6), 1, len(cells), sharex=True)
    for ax, (cell, found) in zip(axes, cells.items(), strict=True):
        ax.plot([place[result] for result in found], list(found.values()), color=theme.muted, linewidth=0.8, zorder=1)
        by_verdict: dict[str, list[str]] = {}
        for result in found:
            by_verdict.setdefault(verdicts.get((cell, result), ""), []).append(result)
        for verdict, at in by_verdict.items():
            _mark(ax, [place[r] for r in at], [found[r] for r in at], verdict, theme, crowded=len(found) > _CROWDED)
        for result in (r for r in (changes or {}).get(cell, []) if r in place):
            ax.axvline(place[result] - 0.5, color=theme.ink, linestyle="--", linewidth=1)
        entitle(ax, cell, theme)
        ax.set_ylabel(METRICS[metric].unit)
        ax.set_ylim(0, 1.15 * max(found.values()))
    _explain(axes[0], theme, bool(changes))
    _dates(axes[-1], results)
    title = f"History of {metric.replace('_', ' ')}"
    words = "; ".join(
        f"{cell} in {plural(len(found), 'result')}, last {number(list(found.values())[-1])} {METRICS[metric].unit}"
        for cell, found in cells.items()
    )
    return Drawing("history", title, f"{title}: {words}.", figure)


def levels(past: History, metric: str) -> dict[str, dict[str, float]]:
    """Cell → result → geometric mean over its processes, for cells with two results or more, the first `MOST_CELLS`.

    Only runs of the kind the metric is taken from, and for times only steady ones: what a baseline is made of.
    """
    owner = METRICS[metric]
    logs: dict[str, dict[str, list[float]]] = {}
    for run in past.runs:
        figure = run.figures.get(metric)
        usable = run.kind == KINDS[owner.family] and (owner.family != "time" or run.steadiness == STEADY)
        if usable and figure is not None and figure > 0:
            logs.setdefault(run.cell, {}).setdefault(run.result, []).append(math.log(figure))
    found = {
        cell: {result: math.exp(math.fsum(values) / len(values)) for result, values in by_result.items()}
        for cell, by_result in logs.items()
        if len(by_result) > 1
    }
    return dict(list(found.items())[:MOST_CELLS])


def _mark(ax: Axes, x: list[int], y: list[float], verdict: str, theme: Theme, crowded: bool) -> None:
    marker, colour = VERDICT_LOOKS.get(verdict, ("o", -1))
    shade = theme.series[colour] if colour >= 0 else theme.muted
    size = 3.0 if crowded else 6.0
    face = shade if colour >= 0 else theme.paper
    ax.plot(x, y, marker, linestyle="none", color=shade, markerfacecolor=face, markersize=size)


def _explain(ax: Axes, theme: Theme, changed: bool) -> None:
    for verdict, (marker, colour) in VERDICT_LOOKS.items():
        ax.plot([], [], marker, linestyle="none", color=theme.series[colour], label=verdict)
    ax.plot([], [], "o", color=theme.muted, mfc=theme.paper, linestyle="none", label="not judged, or not shown")
    if changed:
        ax.plot([], [], "--", color=theme.ink, linewidth=1, label="change point")
    legend(ax, theme, loc="lower center", bbox_to_anchor=(0.5, 1.18), ncols=6)


def _dates(ax: Axes, results: list[str]) -> None:
    """A result's id begins with its time, `YYYYMMDD-HHMMSS`."""
    stride = max(1, -(-len(results) // _MOST_TICKS))
    shown = range(0, len(results), stride)
    ax.set_xticks(
        list(shown), [f"{r[:4]}-{r[4:6]}-{r[6:8]}\n{r[9:11]}:{r[11:13]}" for r in (results[i] for i in shown)]
    )
