"""What happened step by step: times with the warm-up marked, losses with their difference."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from harness.compare.comparison import Comparison
from harness.compare.results import Results, ended_well, unique
from harness.plan import RunKind
from harness.report.figures import milliseconds, pair
from harness.report.plots.theme import Drawing, Margins, Theme, entitle, legend, legend_above, paper, style, thinned
from harness.train.records import RunRecord, StepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PAIRS = 4
"""Pairs of loss curves in one figure, side by side."""


def step_times(results: Results, theme: Theme) -> Drawing | None:
    """Step times of every timing run, one panel per cell. None where no steps were recorded."""
    runs = [
        run for run in ended_well(results.runs) if run.run.kind is RunKind.TIMING and results.steps.get(run.run.key)
    ]
    labels = unique(run.run.cell.label for run in runs)
    if not labels:
        return None
    columns = min(2, len(labels))
    rows = -(-len(labels) // columns)
    figure, axes = paper(theme, 1.2 + 1.6 * rows, Margins(top=0.65), columns, rows, sharex=True, sharey=True)
    for ax, label in zip(axes, labels, strict=False):
        for place, run in enumerate(r for r in runs if r.run.cell.label == label):
            _times(ax, results.steps[run.run.key], f"repeat {run.run.repeat}", place, theme)
        warmup = next(r.run.warmup_steps for r in runs if r.run.cell.label == label)
        ax.axvspan(-0.5, warmup - 0.5, color=theme.grid, zorder=0, label="warm-up, dropped")
        entitle(ax, label, theme)
        ax.set_ylim(bottom=0)
    for ax in axes[len(labels) :]:
        ax.set_visible(False)
    legend_above(axes[0], theme)
    for ax in axes[::columns]:
        ax.set_ylabel("ms")
    for ax in axes[-columns:]:
        ax.set_xlabel("step")
    words = "; ".join(f"{r.run.key} median {milliseconds(_median(r))} ms" for r in runs)
    return Drawing("step-times", "Step times", f"Step times over the run, warm-up marked: {words}.", figure)


def losses(comparison: Comparison, results: Results, theme: Theme) -> Drawing | None:
    """Losses of each pair's learning runs and their difference; timing runs where nothing was learnt.

    None unless some pair has steps on both sides.
    """
    kind = RunKind.LEARNING if any(p.kind == "learning" for p in comparison.parity) else RunKind.TIMING
    names = unique_pairs(comparison, str(kind))[:MOST_PAIRS]
    drawn = [(names_, found) for names_ in names if (found := _curves(*names_, kind, results))]
    if not drawn:
        return None
    figure, axes = paper(theme, 4.6, Margins(top=0.35), len(drawn), 2, sharex="col", height_ratios=[2, 1])
    words = []
    for column, ((reference, candidate), curves) in enumerate(drawn):
        top, bottom = axes[column], axes[column + len(drawn)]
        for place, (old, new) in enumerate(curves):
            _loss(top, old, reference, 0, place, theme)
            _loss(top, new, candidate, 1, place, theme)
            steps, differences = _difference(old, new)
            look = style(2, theme)
            bottom.plot(thinned(steps), thinned(differences), color=str(look["color"]), linewidth=1)
        entitle(top, pair(candidate, reference), theme)
        _plain_log_scale(top)
        bottom.axhline(0.0, color=theme.muted, linewidth=0.8)
        bottom.set_xlabel("step")
        legend(top, theme)
        largest = max((abs(d) for old, new in curves for d in _difference(old, new)[1]), default=0.0)
        words.append(f"{pair(candidate, reference)} differ by at most {largest:.1e}")
    axes[0].set_ylabel("loss")
    axes[len(drawn)].set_ylabel("difference")
    return Drawing("losses", "Loss curves", f"Loss of each pair and its difference: {'; '.join(words)}.", figure)


def _plain_log_scale(ax: Axes) -> None:
    """Ticks at 1, 2 and 5 of each decade, written out."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def unique_pairs(comparison: Comparison, kind: str) -> list[tuple[str, str]]:
    """(reference, candidate) of the loss comparisons of one kind, in order."""
    return list(dict.fromkeys((p.reference, p.candidate) for p in comparison.parity if p.kind == kind))


def _times(ax: Axes, rows: list[StepRow], name: str, place: int, theme: Theme) -> None:
    look = style(place, theme)
    steps = [row.step for row in rows]
    times = [row.step_seconds * 1e3 for row in rows]
    ax.plot(
        thinned(steps), thinned(times), color=str(look["color"]), linestyle=look["linestyle"],
        linewidth=1.2, label=name,
    )  # fmt: skip


def _median(run: RunRecord) -> float | None:
    return run.speed.median_step_seconds if run.speed else None


def _curves(
    reference: str, candidate: str, kind: RunKind, results: Results
) -> list[tuple[list[StepRow], list[StepRow]]]:
    """Steps of the runs of the same repeat; of timing runs, the first pair is enough."""
    partners = {run.run.repeat: results.steps.get(run.run.key, []) for run in results.of(candidate, kind)}
    found = []
    for run in results.of(reference, kind):
        old, new = results.steps.get(run.run.key, []), partners.get(run.run.repeat, [])
        if old and new:
            found.append((old, new))
    return found if kind is RunKind.LEARNING else found[:1]


def _loss(ax: Axes, rows: list[StepRow], label: str, number: int, place: int, theme: Theme) -> None:
    known = [(row.step, row.loss) for row in rows if row.loss is not None]
    look = style(number, theme)
    ax.plot(
        thinned([step for step, _ in known]), thinned([loss for _, loss in known]), color=str(look["color"]),
        linestyle=look["linestyle"], linewidth=1, label=label if place == 0 else None,
    )  # fmt: skip


def _difference(old: list[StepRow], new: list[StepRow]) -> tuple[list[int], list[float]]:
    """Candidate minus reference at common steps; missing losses are gaps."""
    before = {row.step: row.loss for row in old}
    found = [
        (row.step, row.loss - loss)
        for row in new
        if row.loss is not None and (loss := before.get(row.step)) is not None
    ]
    assert all(a[0] < b[0] for a, b in pairwise(found))
    return [step for step, _ in found], [difference for _, difference in found]
