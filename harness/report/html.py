"""`report.html`: one self-contained page for people who click. Verdicts first; nothing is fetched from anywhere."""

from __future__ import annotations

import base64
import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from harness.libero.records import EpisodeRecord
from harness.report import provenance
from harness.report.answers import answers
from harness.report.dossier import Dossier, Media
from harness.report.evaluation import published_tables
from harness.report.figures import MISSING, number
from harness.report.page_tables import answers_table, episodes_table, fingerprints_table, history_table, runs_table
from harness.report.plots.gallery import drawings, inline_svg, page_colours
from harness.report.plots.theme import DARK, LIGHT, Theme
from harness.report.provenance import baseline_table
from harness.report.table import Table
from harness.report.tables import tables
from harness.report.trends import trend_table
from harness.report.verdicts import judgement_line, of, outcome, speed_lines
from harness.train.records import RunRecord, StepRow

FIRST_ROWS = 200
"""Rows laid out when the page opens; the others wait in a template until they are asked for."""
MOST_STEPS = 400
"""Steps shown of one run: all of them, or every n-th."""
PICTURE_BYTES, PICTURES_BYTES = 2**20, 8 * 2**20
"""Largest picture put into the page, and of all pictures together; what is larger is linked."""


class Row(NamedTuple):
    cells: list[Markup]
    detail: str | None
    """Key of what opens when the row is chosen."""


@dataclass(frozen=True)
class TableView:
    """A table as the template wants it."""

    anchor: str
    title: str
    label: str
    columns: list[str]
    numeric: list[bool]
    rows: list[Row]
    reading: str
    notes: list[Markup]
    first: int = FIRST_ROWS


class PlotView(NamedTuple):
    title: str
    svg: Markup


@dataclass
class Section:
    """A heading with its plots, tables and text."""

    anchor: str
    title: str
    plots: list[PlotView] = field(default_factory=list)
    tables: list[TableView] = field(default_factory=list)
    text: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.plots or self.tables or self.text)


@dataclass(frozen=True)
class PageView:
    """What the template is given."""

    suite: str
    hardware_key: str
    result: str
    when: str
    outcome: str
    exit_code: int
    in_short: list[Markup]
    answers: TableView
    lines: list[Markup]
    sections: list[Section]


def render_html(dossier: Dossier) -> str:
    """The page, in UTF-8 with everything inside. A pure function but for the media files, which are read."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("harness.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    source = environment.loader
    assert source is not None
    css, script = (source.get_source(environment, name)[0] for name in ("report.css", "report.js"))
    with _collector_at_rest():
        view = _page(dossier)
    page = environment.get_template("report.html.j2").render(
        page=view,
        css=Markup(_plot_properties() + css),
        script=Markup(script),
        details=Markup(_details(dossier)),
    )
    return page.strip() + "\n"


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Plots make many small objects that all live to the end: looking through them takes a quarter of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _page(dossier: Dossier) -> PageView:
    comparison = dossier.comparison
    lines = speed_lines(comparison)
    told = ("speed", "baseline")
    lines += [judgement_line(j) for j in comparison.judgements if j.question == "success"]
    others = [j for j in comparison.judgements if j.question not in (*told, "success")]
    lines += [judgement_line(j) for j in others if j.verdict not in ("PASS", "IMPROVED")]
    runs = dossier.results.runs
    return PageView(
        suite=comparison.suite,
        hardware_key=comparison.hardware_key,
        result=comparison.result,
        when=min((run.started_at for run in runs), default="")[:16].replace("T", " "),
        outcome=outcome(comparison),
        exit_code=int(comparison.exit_code),
        in_short=[_marked_up(line) for line in answers(comparison)],
        answers=_view("which-is-faster", "", "The answers, pair by pair", answers_table(comparison)),
        lines=[_marked_up(line) for line in lines],
        sections=[section for section in _sections(dossier) if not section.is_empty or section.anchor == "answers"],
    )


def _sections(dossier: Dossier) -> list[Section]:
    comparison, plan = dossier.comparison, dossier.plan
    plots = {drawing.name: PlotView(drawing.title, Markup(inline_svg(drawing))) for drawing in drawings(dossier)}

    def drawn(*names: str) -> list[PlotView]:
        return [plots[name] for name in names if name in plots]

    def named(*names: str) -> list[TableView]:
        found = [titled for name in names for titled in tables(name, comparison, plan)]
        return [_view(_anchor(title), title, title, table) for title, table in found]

    judged = of(comparison, "baseline")
    against = [_view("baseline-table", "", "Against the baseline", baseline_table(judged))] if judged else []
    past = [_view("results", "", "Stored results", history_table(dossier))] if dossier.history.runs else []
    trends = trend_table(comparison.trends)
    past += [_view("trends", "Against earlier results", "Against earlier results", trends)] if trends.rows else []
    elsewhere = [
        _view(_anchor(title), title, title, table)
        for found in comparison.published
        for title, table in published_tables(found).items()
    ]
    runs = [_view("all-runs", "", "Runs", runs_table(dossier), [r.run.key for r in dossier.results.runs])]
    episodes = _view("all-episodes", "", "Episodes", episodes_table(dossier), _episode_details(dossier))
    return [
        Section("answers", "Verdicts"),
        Section("speed", "Speed", drawn("speedups", "throughput", "step-times", "scaling"), named("throughput")),
        Section("memory", "Memory", drawn("memory"), named("memory")),
        Section("parity", "Fair, and the same loss?", drawn("losses"), named("parity")),
        Section("success", "LIBERO success", drawn("success", "paired"), named("success")),
        Section("checkpoints", "Checkpoints", [], named("checkpoint")),
        Section("baseline", "Against the baseline", [], against),
        Section("history", "History", drawn("history"), past),
        Section("runs", "Runs", [], runs),
        Section("episodes", "Episodes", [], [episodes] if dossier.results.episodes else []),
        Section("every-verdict", "Every verdict", [], named("verdicts")),
        Section("fingerprints", "Fingerprints", [], [_view("made", "", "Differences", fingerprints_table(dossier))]),
        Section("published", "Published on another machine", [], elsewhere),
        Section("again", "How to get this again", text=_how(dossier)),
    ]


def _how(dossier: Dossier) -> str:
    parts = [dossier.results.command or MISSING, provenance.configuration(dossier.plan)]
    return "\n\n".join([*parts, provenance.machine(dossier.results)]).replace("## ", "")


def _view(
    anchor: str, title: str, label: str, table: Table, details: list[str | None] | list[str] | None = None
) -> TableView:
    """Cells as markup. A row whose first cell is empty goes into the row above it."""
    rows: list[Row] = []
    judged = [column in ("Verdict", "Outcome") for column in table.columns]
    for place, cells in enumerate(table.rows):
        marked = [_verdict(cell) if verdict else _marked_up(cell) for cell, verdict in zip(cells, judged, strict=True)]
        if cells[0] == "" and rows:
            above = rows[-1].cells
            joined = [
                a + Markup("<br><small>{}</small>").format(b) if b else a for a, b in zip(above, marked, strict=True)
            ]
            rows[-1] = Row(joined, rows[-1].detail)
        else:
            rows.append(Row(marked, details[place] if details else None))
    numeric = [i > 0 and _is_numeric([row[i] for row in table.rows if row[0]]) for i in range(len(table.columns))]
    notes = [_marked_up(note) for note in dict.fromkeys(table.notes)]
    return TableView(anchor, title, label, table.columns, numeric, rows, table.reading, notes)


def _is_numeric(cells: list[str]) -> bool:
    """Whether most cells begin with a number; dates and ids do not count as such."""
    known = [cell.strip("*~+−-") for cell in cells if cell not in ("", MISSING)]
    numbers = [
        cell for cell in known if re.match(r"\d[\d\s]*(\.\d+)?(e[-+]?\d+)?(?![\d\w:-])", cell) and len(cell) < 24
    ]
    return len(numbers) > len(known) / 2


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + "-block"


VERDICT_CLASSES = {
    "PASS": "good", "IMPROVED": "good", "REGRESSED": "bad", "FAILED": "bad", "INCOMPARABLE": "doubt",
    "INCONCLUSIVE": "doubt", "NO_BASELINE": "doubt", "STALE": "doubt", "UNSTEADY": "doubt",
    "OK": "good", "OOM": "bad", "CRASHED": "bad", "HUNG": "bad", "DIVERGED": "bad", "INTERRUPTED": "doubt",
    "success": "good", "error": "bad",
}  # fmt: skip


def _verdict(text: str) -> Markup:
    """A cell that holds a verdict or an outcome, in its colour."""
    kind = VERDICT_CLASSES.get(text)
    return Markup('<span class="v v-{}">{}</span>').format(kind, text) if kind else _marked_up(text)


def _marked_up(text: str) -> Markup:
    """Bold, code and verdicts of the Markdown as HTML; everything else is text."""
    safe = str(escape(text))
    safe = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", safe)
    return Markup(re.sub(r"`(.+?)`", _coded, safe))


def _coded(found: re.Match[str]) -> str:
    kind = VERDICT_CLASSES.get(found[1])
    return f'<span class="v v-{kind}">{found[1]}</span>' if kind else f"<code>{found[1]}</code>"


def _plot_properties() -> str:
    """The plots' colours as custom properties, light and dark."""

    def block(selector: str, theme: Theme) -> str:
        named = zip(page_colours(LIGHT).values(), page_colours(theme), strict=True)
        return f"{selector} {{ {' '.join(f'{name}: {colour};' for name, colour in named)} }}\n"

    return block(":root", LIGHT) + block(':root[data-theme="dark"]', DARK)


# --- what opens on demand ----


def _details(dossier: Dossier) -> str:
    """JSON for the page's script: run key or episode → title, facts, steps, log, picture."""
    found: dict[str, Any] = {run.run.key: _run_detail(run, dossier) for run in dossier.results.runs}
    left = PICTURES_BYTES
    for episode, name in zip(dossier.results.episodes, _episode_details(dossier), strict=True):
        if name is not None:
            media = dossier.media[episode.arm, episode.key]
            inside = media.is_picture and media.size <= min(PICTURE_BYTES, left)
            left -= media.size if inside else 0
            found[name] = _episode_detail(episode, media, inside)
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # a log may hold </script>


def _run_detail(run: RunRecord, dossier: Dossier) -> dict[str, Any]:
    facts = [["Configuration", _flat(run.run.model_dump(mode="json"))]]
    for title, part in (("In force", run.in_force), ("Workload", run.workload)):
        if part is not None:
            facts.append([title, _flat(part.model_dump(mode="json"))])
    return {
        "title": f"{run.run.key}, attempt {run.attempt}: {run.outcome}",
        "facts": facts,
        "failure": "\n".join(filter(None, (run.failure.reason, run.failure.traceback))) if run.failure else None,
        "steps": _steps(dossier.results.steps.get(run.run.key, [])),
        "log": dossier.logs.get(run.run.key),
    }


def _flat(values: dict[str, Any], prefix: str = "") -> list[list[str | None]]:
    pairs: list[list[str | None]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            pairs += _flat(value, f"{prefix}{name}.")
        else:
            pairs.append([prefix + name, None if value is None else str(value)])
    return pairs


def _steps(rows: list[StepRow]) -> dict[str, Any] | None:
    if not rows:
        return None
    shown = rows[:: max(1, -(-len(rows) // MOST_STEPS))]
    return {
        "columns": ["Step", "Step ms", "Data ms", "Loss", "Gradient norm", "Learning rate"],
        "rows": [
            [
                str(row.step),
                number(row.step_seconds * 1e3),
                number(row.data_seconds * 1e3),
                None if row.loss is None else f"{row.loss:.6g}",
                None if row.gradient_norm is None else f"{row.gradient_norm:.4g}",
                f"{row.learning_rate:.3g}",
            ]
            for row in shown
        ],
    }


def _episode_details(dossier: Dossier) -> list[str | None]:
    """Per episode the key of what opens; None where nothing was recorded."""
    return [
        f"{e.arm}/{e.key.task_suite}-{e.key.task}-{e.key.initial_state}-{e.key.seed}"
        if (e.arm, e.key) in dossier.media
        else None
        for e in dossier.results.episodes
    ]


def _episode_detail(episode: EpisodeRecord, media: Media, inside: bool) -> dict[str, Any]:
    key = episode.key
    title = f"{episode.arm}, {key.task_suite} {key.task}, state {key.initial_state}: {episode.outcome}"
    detail: dict[str, Any] = {"title": title, "facts": [["Episode", _flat(episode.model_dump(mode="json"))]]}
    if inside:
        kind = media.path.suffix.removeprefix(".").replace("jpg", "jpeg")
        data = base64.b64encode(media.path.read_bytes()).decode()
        return detail | {"picture": f"data:image/{kind};base64,{data}", "alt": f"Contact sheet of {title}"}
    return detail | {"link": media.relative}
