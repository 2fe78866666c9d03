"""All plots of a report, in the order they are shown; those that have nothing to show are left out."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

from harness.report.dossier import Dossier
from harness.report.plots.curves import losses, step_times
from harness.report.plots.history import over_results
from harness.report.plots.memory import memory
from harness.report.plots.speed import scaling, speedups, throughput
from harness.report.plots.success import paired, per_task
from harness.report.plots.theme import LIGHT, THEMES, Drawing, Theme
from harness.store import write_atomically

DOTS_PER_INCH = 150
PLOTS: tuple[Callable[[Dossier, Theme], Drawing | None], ...] = (
    lambda dossier, theme: speedups(dossier.comparison, dossier.plan, theme),
    lambda dossier, theme: throughput(dossier.comparison, dossier.results, theme),
    lambda dossier, theme: memory(dossier.comparison, dossier.results, theme),
    lambda dossier, theme: per_task(dossier.results, theme),
    lambda dossier, theme: paired(dossier.comparison, theme),
    lambda dossier, theme: losses(dossier.comparison, dossier.results, theme),
    lambda dossier, theme: step_times(dossier.results, theme),
    lambda dossier, theme: over_results(dossier.history, theme, changes=_changes(dossier)),
    lambda dossier, theme: scaling(dossier.comparison, theme),
)


def _changes(dossier: Dossier) -> dict[str, list[str]]:
    """Cell → results at which its step time came to a new level."""
    trends = [trend for trend in dossier.comparison.trends if trend.metric == "step_seconds" and trend.changes]
    return {trend.subject: [change.result for change in trend.changes] for trend in trends}


def drawings(dossier: Dossier, theme: Theme = LIGHT) -> list[Drawing]:
    """Every plot that the records allow. A pure function: the same records give the same figures."""
    found = (draw(dossier, theme) for draw in PLOTS)
    return [drawing for drawing in found if drawing is not None]


def write_plots(dossier: Dossier, folder: Path) -> list[Path]:
    """`<name>-<theme>.png` and `.svg` of every plot; returns the files. Raises DiskFull."""
    files = []
    for theme in THEMES.values():
        for drawing in drawings(dossier, theme):
            for kind in ("png", "svg"):
                file = folder / f"{drawing.name}-{theme.name}.{kind}"
                write_atomically(file, _rendered(drawing, kind))
                files.append(file)
    return files


def _rendered(drawing: Drawing, kind: str) -> bytes:
    import matplotlib as mpl

    made = io.BytesIO()
    about = (
        {"Title": drawing.title, "Date": None}
        if kind == "svg"
        else {"Title": drawing.title, "Description": drawing.alt}
    )
    with mpl.rc_context({"svg.hashsalt": drawing.name}):
        drawing.figure.savefig(made, format=kind, dpi=DOTS_PER_INCH, metadata=about)
    return made.getvalue()


def inline_svg(drawing: Drawing) -> str:
    """The plot as an SVG element for a page: named for screen readers, its text as text, its colours the page's.

    The page gives the custom properties `--plot-paper`, `--plot-ink`, … and `--plot-0` to `--plot-5` their values.

    Args:
        drawing: in the `LIGHT` theme.
    """
    import matplotlib as mpl

    made = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": drawing.name, "svg.fonttype": "none", "font.family": "sans-serif"}):
        drawing.figure.savefig(
            made, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = made.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace("xlink:href", "href")
    text = re.sub(r'(\bid="|url\(#|\bhref="#)', rf"\g<1>{drawing.name}-", text)  # ids are the page's, not the plot's
    text = re.sub(
        r'^<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf'<svg \1 role="img" aria-label="{_attribute(drawing.alt)}">', text
    )
    for colour, name in page_colours(LIGHT).items():
        text = re.sub(rf'\b(fill|stroke)="{colour}"', rf'style="\1: var({name})"', text)  # inside hatches
        text = text.replace(colour, f"var({name})")
    return text.strip()


def page_colours(theme: Theme) -> dict[str, str]:
    """Colour → custom property of a page."""
    named = {theme.paper: "paper", theme.ink: "ink", theme.muted: "muted", theme.grid: "grid"}
    named |= {colour: str(number) for number, colour in enumerate(theme.series)}
    return {colour: f"--plot-{name}" for colour, name in named.items()}


def _attribute(text: str) -> str:
    from markupsafe import escape

    return str(escape(text)).replace("\\", "")
