from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from comparison_records import a_cell, a_plan, some_results

from harness.compare.comparison import compare
from harness.compare.results import Results
from harness.compare.summary import CellSummary
from harness.history import History, PastRun, PastVerdict
from harness.report.dossier import Dossier
from harness.report.plots.curves import losses
from harness.report.plots.gallery import drawings, inline_svg, page_colours, write_plots
from harness.report.plots.history import levels, over_results
from harness.report.plots.memory import memory
from harness.report.plots.speed import scaling, speedups, throughput
from harness.report.plots.success import paired, per_task
from harness.report.plots.theme import DARK, LIGHT, MOST_POINTS, Drawing, Theme, thinned

PLAN = a_plan()


def texts(drawing: Drawing) -> list[str]:
    from matplotlib.text import Text

    return [text.get_text() for text in drawing.figure.findobj(Text)]


@pytest.fixture(scope="module")
def drawn(real: Dossier) -> list[Drawing]:
    return drawings(real)


def test_a_real_result_has_every_plot_it_can_have(drawn: list[Drawing]) -> None:
    found = [drawing.name for drawing in drawn]
    assert found == ["speedups", "throughput", "memory", "success", "paired", "losses", "step-times", "history"]


def test_nothing_measured_draws_nothing() -> None:
    empty = Results("r", "", [])
    comparison = compare(PLAN, empty, None, [])
    assert drawings(Dossier(comparison, PLAN, empty)) == []


def test_the_forest_prints_each_ratio_with_its_interval() -> None:
    results = some_results(PLAN)
    drawing = speedups(compare(PLAN, results, None, []), PLAN, LIGHT)
    assert drawing is not None
    assert "1.25× [1.19–1.31]" in texts(drawing)
    assert "pi0: fsdp2 vs zero3 1.25× [1.19–1.31], faster" in drawing.alt


def test_an_incomparable_pair_is_not_drawn() -> None:
    results = some_results(PLAN)
    comparison = compare(PLAN, results, None, [])
    unlike = [s.model_copy(update={"comparable": False}) for s in comparison.speedups]
    assert speedups(comparison.model_copy(update={"speedups": unlike, "other_speedups": []}), PLAN, LIGHT) is None


def test_throughput_counts_the_runs_the_table_counts(real: Dossier) -> None:
    drawing = throughput(real.comparison, real.results, LIGHT)
    assert drawing is not None
    assert "pi0-zero3 43.9 from 1 of 2 runs" in drawing.alt
    assert "pi0-zero2 88.1 from 2 of 2 runs" in drawing.alt  # none was steady


def test_memory_adds_up_to_the_peak(real: Dossier) -> None:
    drawing = memory(real.comparison, real.results, LIGHT)
    assert drawing is not None
    bars = drawing.figure.axes[0].patches
    cells = len(real.comparison.cells)
    widths = [sum(bar.get_width() for bar in bars[row::cells]) for row in range(cells)]
    assert widths == pytest.approx([(cell.peak_resident_bytes or 0) / 2**20 for cell in real.comparison.cells])
    assert any("3.3% of the machine" in text for text in texts(drawing))


def test_the_difference_of_equal_losses_is_zero() -> None:
    results = some_results(PLAN)
    same = {key: results.steps["pi0-zero3/learning-0"] for key in results.steps if "learning" in key}
    drawing = losses(compare(PLAN, results, None, []), replace(results, steps=same), LIGHT)
    assert drawing is not None
    assert "differ by at most 0.0e+00" in drawing.alt


def test_errors_are_in_no_rate_of_the_heat_map(real: Dossier) -> None:
    episodes = [
        e.model_copy(update={"outcome": "error", "reason": "died"}) if e.arm == "expert" and e.key.task == 1 else e
        for e in real.results.episodes
    ]
    drawing = per_task(replace(real.results, episodes=episodes), LIGHT)
    assert drawing is not None
    assert "expert 13 of 13" in drawing.alt


def test_paired_outcomes_are_counted_and_named(real: Dossier) -> None:
    drawing = paired(real.comparison, LIGHT)
    assert drawing is not None
    assert "pi0: fsdp2 vs zero3: both 12, only the reference 1, only the other 1, neither 9" in drawing.alt


def a_past_run(result: str, seconds: float, **changes: object) -> PastRun:
    plain = {
        "suite": "s", "result": result, "started_at": "2026-03-01T10:00:00+00:00", "hardware_key": "h", "cell": "pi0-a",
        "kind": "timing", "repeat": 0, "outcome": "OK", "reason": None, "model": "pi0", "size": "micro",
        "backend": "fsdp2", "ranks": 2, "stack": "native", "precision": "fp32", "samples_per_step": 16,
        "steadiness": "STEADY", "final_loss": None, "figures": {"step_seconds": seconds}, "versions": {},
    }  # fmt: skip
    return PastRun(**{**plain, **changes})  # type: ignore[arg-type]


def test_history_is_of_steady_timing_runs() -> None:
    runs = [
        a_past_run("20260101-000000-a", 0.2),
        a_past_run("20260101-000000-a", 0.8, repeat=1),
        a_past_run("20260102-000000-b", 0.3),
        a_past_run("20260102-000000-b", 9.0, steadiness="UNSTEADY"),
        a_past_run("20260102-000000-b", 9.0, kind="learning"),
    ]
    found = levels(History(runs=runs), "step_seconds")["pi0-a"]
    assert found == pytest.approx({"20260101-000000-a": 0.4, "20260102-000000-b": 0.3})


def test_history_marks_verdicts_and_changes() -> None:
    runs = [a_past_run(f"2026010{i}-000000-a", 0.2 + 0.1 * (i > 3)) for i in range(1, 7)]
    verdict = PastVerdict(
        suite="s", result=runs[3].result, question="baseline", subject="pi0-a", metric="step_seconds",
        verdict="REGRESSED", effect=1.5, effect_low=1.0, effect_high=2.0, n=2, reason="slower",
    )  # fmt: skip
    past = History(runs=runs, verdicts=[verdict])
    drawing = over_results(past, LIGHT, changes={"pi0-a": [runs[3].result]})
    assert drawing is not None
    ax = drawing.figure.axes[0]
    marks = {line.get_marker(): list(line.get_xdata()) for line in ax.lines if len(line.get_xdata())}
    assert marks["v"] == [3] and marks["o"] == [0, 1, 2, 4, 5]
    assert [2.5, 2.5] in [list(line.get_xdata()) for line in ax.lines]
    assert over_results(History(runs=runs[:1]), LIGHT) is None


def test_scaling_needs_cells_that_differ_in_ranks_alone() -> None:
    comparison = compare(PLAN, some_results(PLAN), None, [])
    assert scaling(comparison, LIGHT) is None
    one = comparison.cells[2]

    def with_ranks(ranks: int, speed: float) -> CellSummary:
        cell = a_cell("fsdp2", ranks=ranks, label=f"pi0-fsdp2x{ranks}")
        return one.model_copy(update={"label": cell.label, "cell": cell, "samples_per_second": speed})

    more = comparison.model_copy(update={"cells": [with_ranks(1, 30.0), with_ranks(2, 54.0)]})
    drawing = scaling(more, LIGHT)
    assert drawing is not None
    assert "pi0-fsdp2x1 at 2 ranks 54.0, 90% of proportion" in drawing.alt


def test_files_in_both_themes_and_kinds(real: Dossier, tmp_path: Path) -> None:
    few = replace(real, results=replace(real.results, steps={}, episodes=[]), history=History())
    files = write_plots(few, tmp_path)
    names = {file.name for file in files}
    assert {f"memory-{theme}.{kind}" for theme in ("light", "dark") for kind in ("png", "svg")} <= names
    assert (tmp_path / "memory-light.png").read_bytes()[:4] == b"\x89PNG"
    assert DARK.paper in (tmp_path / "memory-dark.svg").read_text()
    assert LIGHT.paper not in (tmp_path / "memory-dark.svg").read_text()


def test_the_same_records_give_the_same_file(real: Dossier) -> None:
    twice = [throughput(real.comparison, real.results, LIGHT) for _ in range(2)]
    assert twice[0] is not None and twice[1] is not None
    assert inline_svg(twice[0]) == inline_svg(twice[1])


def test_an_inline_plot_takes_the_pages_colours_and_has_words(drawn: list[Drawing]) -> None:
    found = [inline_svg(drawing) for drawing in drawn]
    whole = "".join(found)
    for colour in page_colours(LIGHT):
        assert colour not in whole
    ids = re.findall(r'\bid="([^"]+)"', whole)
    assert len(ids) == len(set(ids))
    for svg in found:
        root = Xml.fromstring(svg)
        assert root.get("role") == "img" and len(root.get("aria-label") or "") > 20


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_colours_can_be_told_from_the_paper(theme: Theme) -> None:
    assert all(contrast(colour, theme.paper) >= 3 for colour in theme.series)
    assert contrast(theme.ink, theme.paper) >= 7 and contrast(theme.muted, theme.paper) >= 4.5


# Brettel, Viénot and Mollon (1997) as simplified by Viénot et al. (1999): linear RGB seen without M or without L cones.
DEUTERANOPE = ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0))
PROTANOPE = ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("seen", [DEUTERANOPE, PROTANOPE], ids=["deuteranope", "protanope"])
def test_the_first_three_series_differ_for_the_colour_blind(theme: Theme, seen: tuple[tuple[float, ...], ...]) -> None:
    def look(colour: str) -> list[float]:
        linear = [(int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)]
        return [sum(w * c for w, c in zip(row, linear, strict=True)) for row in seen]

    looks = [look(colour) for colour in theme.series[:3]]
    distances = [sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) ** 0.5 for x, y in pairwise([*looks, looks[0]])]
    assert min(distances) > 0.1


def test_long_lines_are_thinned() -> None:
    assert len(thinned(range(100_000))) <= MOST_POINTS + 1
    assert list(thinned([1.0, 2.0])) == [1.0, 2.0]
