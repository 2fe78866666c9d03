"""The page in a real browser: headless Chromium, driven by Playwright."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from harness.history import History
from harness.report.dossier import Dossier, Media
from harness.report.html import PICTURE_BYTES, render_html

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef"
    "0000000049454e44ae426082"
)
OPENS_MS = 2000
"""A history of 1,000 runs is there within this time."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    assert found, f"these tests need a browser: `apt-get install chromium` (looked for {', '.join(names)})"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_file(real: Dossier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real result with a contact sheet for one episode and a clip for another."""
    folder = tmp_path_factory.mktemp("page")
    first, second = real.results.episodes[0], real.results.episodes[1]
    sheet, clip = folder / "sheet.png", folder / "clip.mp4"
    sheet.write_bytes(PNG)
    clip.write_bytes(b"0" * 100)
    media = {
        (first.arm, first.key): Media(sheet, "evaluate/x/sheets/sheet.png", len(PNG)),
        (second.arm, second.key): Media(clip, "evaluate/x/clips/clip.mp4", 100),
    }
    file = folder / "report.html"
    file.write_text(render_html(replace(real, media=media)))
    return file


@pytest.fixture
def opened(browser: Browser, page_file: Path) -> Iterator[tuple[Page, list[str]]]:
    """The page, and everything it complained about or asked the network for."""
    page = browser.new_page()
    noise: list[str] = []
    page.on("console", lambda message: noise.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: noise.append(f"error: {error}"))
    page.on("request", lambda request: noise.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(page_file.as_uri())
    yield page, noise
    page.close()


def column(page: Page, table: str, place: int) -> list[str]:
    cells = page.locator(f"#{table} tbody tr > :nth-child({place})")
    return [text.strip() for text in cells.all_inner_texts()]


def test_it_loads_in_silence_and_asks_for_nothing(opened: tuple[Page, list[str]], page_file: Path) -> None:
    page, noise = opened
    assert noise == []
    assert page.title() == "fsdp2: Exit code 11: not everything asked is shown."
    assert not re.search(r'(src|href)="(https?:)?//', page_file.read_text())


def test_the_first_screen_holds_the_answers(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    page.set_viewport_size({"width": 1280, "height": 800})
    table = page.locator("#which-is-faster-table")
    box = table.bounding_box()
    assert box is not None and box["y"] + box["height"] < 800
    text = table.inner_text()
    for answer in ("pi0: fsdp2 vs zero3", "1.28× [–]", "INCONCLUSIVE", "743 vs 796", "0.0 [−13.6, +13.6]"):
        assert answer in text
    first = page.locator("#answers li").first.inner_text()
    assert first.startswith("pi0: no difference in speed is shown between fsdp2 and zero3: 1.28× [–]")
    assert "LIBERO success is not shown to be kept: 0.0 [−13.6, +13.6] points" in first


def test_only_verdicts_and_outcomes_are_coloured_as_such(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    coloured = page.locator("#verdicts-block-table .v").all_inner_texts()
    assert "PASS" in coloured and all(word.isupper() for word in coloured)
    assert "success" in column(page, "verdicts-block-table", 2)  # the question, in no colour
    assert "success" in column(page, "all-episodes-table", 3)


def test_a_table_without_rows_is_its_note_alone(real: Dossier, browser: Browser, tmp_path: Path) -> None:
    bare = replace(real, results=replace(real.results, steps={}), history=History())
    file = tmp_path / "report.html"
    file.write_text(render_html(bare))
    page = browser.new_page()
    page.goto(file.as_uri())
    section = page.locator("#fingerprints")
    assert not section.locator("table").is_visible()
    assert re.search(r"Nothing differs between \d+ records", section.inner_text())
    page.close()


def test_sorting_is_by_number_and_leaves_the_missing_last(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    heading = page.locator("#all-runs-table thead th").nth(2)
    heading.locator("button").click()
    times = [float(text) for text in column(page, "all-runs-table", 3)]
    assert heading.get_attribute("aria-sort") == "ascending" and times == sorted(times)
    heading.locator("button").click()
    assert [float(text) for text in column(page, "all-runs-table", 3)] == sorted(times, reverse=True)
    page.locator("#all-runs-table thead button").last.click()
    started = column(page, "all-runs-table", 9)
    assert started == sorted(started) and len(set(started)) > 3
    for _ in range(2):
        page.locator("#speed-pi0-block-table thead button").nth(5).click()
        assert column(page, "speed-pi0-block-table", 6)[-1] == "–"


def test_filtering_keeps_rows_with_every_word(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    field = page.get_by_label("Filter").and_(page.locator('[data-filter="all-episodes-table"]'))
    field.fill("expert libero_object success")
    assert set(column(page, "all-episodes-table", 2)) == {"expert"}
    assert page.locator('[data-count="all-episodes-table"]').inner_text() == "20 of 92 rows"
    field.fill("no such episode")
    assert column(page, "all-episodes-table", 1) == []
    field.fill("")
    assert len(column(page, "all-episodes-table", 1)) == 92


def test_a_run_opens_by_keyboard_with_steps_and_log(opened: tuple[Page, list[str]]) -> None:
    page, noise = opened
    button = page.locator('#all-runs-table button[data-open="pi0-fsdp2/timing-0"]')
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("heading", level=2).inner_text() == "pi0-fsdp2/timing-0, attempt 1: OK"
    text = dialog.inner_text()
    assert "cell.optimizer.lr" in text and "FSDPPi0" in text and "Gradient norm" in text
    assert 'alert("a log is text")' in text
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.evaluate("document.activeElement.dataset.open") == "pi0-fsdp2/timing-0"
    assert noise == []


def test_an_episodes_contact_sheet_opens_on_demand(opened: tuple[Page, list[str]]) -> None:
    page, noise = opened
    assert page.locator("img").count() == 0
    page.locator("#all-episodes-table button[data-open]").nth(0).click()
    image = page.get_by_role("dialog").locator("img")
    assert re.match(r"Contact sheet of pi0-zero3-seed0, libero_object \d, state 40", image.get_attribute("alt") or "")
    assert image.evaluate("image => image.naturalWidth") == 1
    page.keyboard.press("Escape")
    page.locator("#all-episodes-table button[data-open]").nth(1).click()
    assert page.get_by_role("dialog").locator("a").get_attribute("href") == "evaluate/x/clips/clip.mp4"
    assert noise == []


def test_every_picture_has_words_and_every_control_a_name(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    assert page.locator("svg").count() == 8
    for svg in page.locator("svg").all():
        assert svg.get_attribute("role") == "img" and len(svg.get_attribute("aria-label") or "") > 20
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, a')].filter(e => !(e.textContent.trim() || "
        "(e.labels && e.labels.length) || e.getAttribute('aria-label'))).length"
    )
    assert nameless == 0
    levels = [int(tag[1]) for tag in page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(e => e.tagName)")]
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_everything_is_reached_with_the_tab_key(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answers"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(browser: Browser, page_file: Path, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(page_file.as_uri())
    colours = page.evaluate(
        """() => {
            const parse = (c) => c.match(/[\\d.]+/g).slice(0, 3).map(Number);
            const paper = parse(getComputedStyle(document.body).backgroundColor);
            const seen = [...document.querySelectorAll('p, a, td, th, .v, figcaption, svg text')];
            return [paper, [...new Set(seen.map((e) => {
                const style = getComputedStyle(e);
                return e.closest('svg') ? style.fill : style.color;
            }))].map(parse)];
        }"""
    )
    paper, inks = colours
    page.close()

    def luminance(rgb: list[float]) -> float:
        parts = [c / 255 / 12.92 if c <= 10.3 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light = luminance(paper) > 0.5
    assert light == (scheme == "light")
    for ink in inks:
        if ink in ([0, 0, 0], [255, 255, 255]):
            continue  # figures inside the heat map stand on its own colours
        low, high = sorted((luminance(paper), luminance(ink)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, ink


def test_a_narrow_screen_scrolls_tables_and_not_the_page(browser: Browser, page_file: Path) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 740})
    page.goto(page_file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()


def long_history(real: Dossier, count: int) -> Dossier:
    """`count` runs, ten in each of `count`/10 results."""
    run = next(run for run in real.history.runs if run.kind == "timing" and run.steadiness == "STEADY")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    runs = []
    for number in range(count):
        when = start + timedelta(days=number // 10)
        changes: dict[str, Any] = {
            "result": f"{when:%Y%m%d-%H%M%S}-abc123", "started_at": when.isoformat(), "repeat": number % 10,
            "cell": f"pi0-{'ab'[number % 2]}",
        }  # fmt: skip
        runs.append(run.model_copy(update=changes))
    return replace(real, history=History(runs=runs))


def test_a_history_of_a_thousand_runs_opens_at_once(real: Dossier, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_html(long_history(real, 1000)))
    taken = []
    for _ in range(3):  # the quickest says what the page needs; a busy machine adds to it
        page = browser.new_page()
        page.goto(file.as_uri())
        assert page.locator("#results-table tbody tr").count() == 100
        taken.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
        page.close()
        if taken[-1] < OPENS_MS:
            break
    assert min(taken) < OPENS_MS


def test_pictures_beyond_the_limits_are_linked(real: Dossier, tmp_path: Path) -> None:
    episode = real.results.episodes[0]
    large = tmp_path / "large.png"
    large.write_bytes(PNG + b"0" * PICTURE_BYTES)
    media = {(episode.arm, episode.key): Media(large, "evaluate/x/sheets/large.png", large.stat().st_size)}
    html = render_html(replace(real, media=media, results=replace(real.results, steps={})))
    found = re.search(r'<script type="application/json" id="details">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    [detail] = [d for d in json.loads(found[1]).values() if "link" in d]
    assert detail["link"] == "evaluate/x/sheets/large.png" and "data:image" not in html


def test_rows_beyond_the_first_wait_and_are_found(real: Dossier, browser: Browser, tmp_path: Path) -> None:
    many = [
        episode.model_copy(update={"key": episode.key.model_copy(update={"seed": seed})})
        for seed in range(1000, 1005)
        for episode in real.results.episodes
    ]
    file = tmp_path / "report.html"
    file.write_text(render_html(replace(real, results=replace(real.results, episodes=many, steps={}))))
    page = browser.new_page()
    page.goto(file.as_uri())
    assert len(column(page, "all-episodes-table", 1)) == 200
    page.locator('[data-filter="all-episodes-table"]').fill("1004 still")
    assert len(column(page, "all-episodes-table", 1)) == 23
    page.locator('[data-filter="all-episodes-table"]').fill("")
    page.locator('[data-more="all-episodes-table"]').click()
    assert len(column(page, "all-episodes-table", 1)) == 460
    page.close()
