"""History as rows and as Parquet; the queries of docs/history.md are run by DuckDB."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

from harness.history import History, each_result, read_history
from harness.report.export import rows
from harness.report.export.rows import history_rows, write_history, write_tables
from harness.store import Store

ROOT = Path(__file__).parents[1]
REAL = ROOT / "tests" / "report" / "real" / "results"
PAGE = ROOT / "docs" / "history.md"
LATEST = ("pi0-ddp", 0, "20261130-020957")
QUERIES = re.findall(r"^## (.+?)\n.*?```sql\n(.+?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def past() -> History:
    return read_history(Store(REAL))


@pytest.fixture(scope="module")
def folder(past: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`history/` below the folder that is returned."""
    root = tmp_path_factory.mktemp("history")
    written = write_history(each_result(Store(REAL)), root / "history")
    assert (len(written.history.runs), written.episodes) == (len(past.runs), len(past.episodes))
    return root


def test_every_run_verdict_and_episode_is_there_once(past: History) -> None:
    assert past.results == ["20261130-020957-9b0616", "20261130-030353-f63925"]
    assert [sum(run.result == result for run in past.runs) for result in past.results] == [10, 3]
    assert len(past.episodes) == 92 + 20
    assert past.unreadable == {}


def test_episodes_in_pieces_are_the_same_episodes(past: History, tmp_path: Path, monkeypatch) -> None:
    write_tables(history_rows(past), tmp_path / "whole", "parquet")
    monkeypatch.setattr(rows, "ROW_GROUP", 30)
    write_history(each_result(Store(REAL)), tmp_path / "pieces")
    for name in ("runs", "verdicts", "episodes"):
        whole, pieces = (pd.read_parquet(tmp_path / kind / f"{name}.parquet") for kind in ("whole", "pieces"))
        pd.testing.assert_frame_equal(whole, pieces)
    write_history([History(episodes=past.episodes[:40]), History(episodes=past.episodes[40:])], tmp_path / "two")
    assert pq.ParquetFile(tmp_path / "two" / "episodes.parquet").num_row_groups == 2


def test_an_old_comparison_stays_readable(past: History) -> None:
    """The stored one lacks fields that today's has."""
    assert {v.verdict for v in past.verdicts} == {"PASS", "INCONCLUSIVE", "NO_BASELINE"}


def test_a_damaged_result_is_named_and_spoils_nothing(tmp_path: Path) -> None:
    shutil.copytree(REAL, tmp_path / "results")
    record = tmp_path / "results/fsdp2/20261130-020957-9b0616/train/pi0-ddp/timing-0/attempt-1/run.json"
    record.write_text(record.read_text()[:100])
    found = read_history(Store(tmp_path / "results"))
    assert found.results == ["20261130-030353-f63925"]
    assert str(record) in found.unreadable["20261130-020957-9b0616"]


def test_only_the_latest_attempt_counts(tmp_path: Path) -> None:
    shutil.copytree(REAL, tmp_path / "results")
    run = tmp_path / "results/fsdp2/20261130-020957-9b0616/train/pi0-ddp/timing-0"
    for number in (2, 10):
        (run / f"attempt-{number}").mkdir()
        text = (run / "attempt-1" / "run.json").read_text()
        (run / f"attempt-{number}" / "run.json").write_text(text.replace("02:16", f"12:{number}"))
    [found] = [r for r in read_history(Store(tmp_path / "results")).runs if (r.cell, r.repeat, r.result[:15]) == LATEST]
    assert "12:10" in found.started_at


def test_an_attempt_that_failed_does_not_hide_one_that_ended_well(tmp_path: Path) -> None:
    """As in the result's own report: a block that is measured again may crash."""
    shutil.copytree(REAL, tmp_path / "results")
    run = tmp_path / "results/fsdp2/20261130-020957-9b0616/train/pi0-ddp/timing-0"
    (run / "attempt-2").mkdir()
    crashed = json.loads((run / "attempt-1" / "run.json").read_text()) | {
        "attempt": 2,
        "outcome": "CRASHED",
        "speed": None,
    }
    (run / "attempt-2" / "run.json").write_text(json.dumps(crashed))
    [found] = [r for r in read_history(Store(tmp_path / "results")).runs if (r.cell, r.repeat, r.result[:15]) == LATEST]
    assert (found.outcome, "step_seconds" in found.figures) == ("OK", True)


def test_pandas_reads_figures_as_numbers_and_the_missing_as_missing(folder: Path) -> None:
    runs = pd.read_parquet(folder / "history" / "runs.parquet")
    assert runs["step_seconds"].dtype == "float64" and runs["ranks"].dtype == "int64"
    timing = runs[runs["kind"] == "timing"]
    assert timing["checkpoint_bytes"].isna().all() and not timing["step_seconds"].isna().any()
    assert set(runs["version_deepspeed"]) == {"0.19.8"}


def test_an_empty_history_has_its_columns(tmp_path: Path) -> None:
    write_tables(history_rows(History()), tmp_path, "parquet")
    assert "step_seconds" in pd.read_parquet(tmp_path / "runs.parquet").columns


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_the_documented_queries_answer(title: str, query: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    answer = duckdb.sql(query).df()
    assert len(answer.columns) >= 2
    assert len(answer) > 0 or title == "What failed, and why?"


def test_there_is_a_query_for_each_common_question() -> None:
    assert len(QUERIES) >= 7
