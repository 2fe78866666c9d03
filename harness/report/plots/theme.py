"""Paper, ink and colours of the plots, and the one kind of axes all of them are drawn on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 8.0
"""Of every figure, in inches."""
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (1, 1)))
"""Series differ in marker and dash too: colour alone tells nothing to some readers and to most printers."""
MOST_POINTS = 500
"""Points of one line; more cannot be told apart at these sizes."""


class Theme(NamedTuple):
    """Colours as `#rrggbb`. `series` follow Okabe and Ito (2008), darkened on white and lightened on black so that
    each has at least 3:1 contrast with the paper (WCAG 2.2, 1.4.11)."""

    name: str
    paper: str
    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]


LIGHT = Theme(
    "light", "#fdfdfc", "#1c1d1f", "#5d6167", "#d9dbde",
    ("#0072b2", "#c14a00", "#00795a", "#a4478a", "#866000", "#4a5a6a"),
)  # fmt: skip
DARK = Theme(
    "dark", "#15171a", "#e8e9eb", "#a0a5ac", "#3a3e44",
    ("#56b4e9", "#ff9a5c", "#2fc79a", "#e79bc6", "#e3b341", "#a9bcd0"),
)  # fmt: skip
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


class Drawing(NamedTuple):
    """A plot with its words."""

    name: str
    """Fit for a file name."""
    title: str
    alt: str
    """What the plot shows, for those who do not see it."""
    figure: Figure


class Margins(NamedTuple):
    """Inches around the axes. Known beforehand: measuring every text to find them takes as long as drawing."""

    left: float = 0.75
    right: float = 0.2
    top: float = 0.2
    bottom: float = 0.6


def beside(names: Iterable[str]) -> float:
    """Left margin, in inches, for row labels of 9 points: DejaVu Sans takes at most 0.08 inches a character."""
    return 0.3 + 0.08 * max(map(len, names))


def paper(
    theme: Theme, height: float, margins: Margins, columns: int = 1, rows: int = 1, **grid: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure 8 inches wide and its axes, row by row.

    Args:
        height: inches.
        grid: passed to `Figure.subplots` (`sharex`, `height_ratios`, …).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), facecolor=theme.paper)
    figure.subplots_adjust(
        left=margins.left / WIDTH,
        right=1 - margins.right / WIDTH,
        top=1 - margins.top / height,
        bottom=margins.bottom / height,
        wspace=0.16,
        hspace=0.35,
    )
    made = figure.subplots(rows, columns, squeeze=False, **grid)
    axes: list[Axes] = list(made.flat)
    for ax in axes:
        _dress(ax, theme)
    return figure, axes


def _dress(ax: Axes, theme: Theme) -> None:
    ax.set_facecolor(theme.paper)
    ax.tick_params(which="both", colors=theme.muted, labelcolor=theme.ink, labelsize=9)
    ax.xaxis.label.set_color(theme.ink)
    ax.yaxis.label.set_color(theme.ink)
    for side, spine in ax.spines.items():
        spine.set_color(theme.muted)
        spine.set_visible(side in ("left", "bottom"))
    ax.grid(True, color=theme.grid, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.set_title("", y=1.0)  # to find a place for it, every label of the ticks would be measured


def entitle(ax: Axes, text: str, theme: Theme) -> None:
    ax.set_title(text, fontsize=10, color=theme.ink, y=1.0)


def legend(ax: Axes, theme: Theme, **where: Any) -> None:
    """A legend without a frame; nothing where nothing is labelled."""
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, fontsize=8, labelcolor=theme.ink, **where)


def legend_above(ax: Axes, theme: Theme) -> None:
    """The legend of axes that stand for all the others, in one line at the top of the figure."""
    handles, labels = ax.get_legend_handles_labels()
    if labels:
        figure = ax.figure
        figure.legend(
            handles, labels, loc="upper center", ncols=len(labels), frameon=False, fontsize=8, labelcolor=theme.ink
        )


def thinned(values: Sequence[float]) -> Sequence[float]:
    """Every n-th value, at most about `MOST_POINTS` of them, the first one always."""
    return values[:: max(1, len(values) // MOST_POINTS)]


def style(number: int, theme: Theme) -> dict[str, object]:
    """Colour, dash and marker of the n-th series."""
    return {
        "color": theme.series[number % len(theme.series)],
        "linestyle": LINES[number % len(LINES)],
        "marker": MARKERS[number % len(MARKERS)],
    }
