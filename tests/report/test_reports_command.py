"""`harness report`, `export` and `history` as typed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Typed = Callable[..., "subprocess.CompletedProcess[str]"]
RESULT = "20261130-020957-9b0616"


def harness(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def reported(real_results: Path, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    where = tmp_path_factory.mktemp("cwd")
    return harness("report", RESULT, "--results", str(real_results), cwd=where)


def test_a_report_is_printed_and_written_as_a_page(
    reported: subprocess.CompletedProcess[str], real_results: Path
) -> None:
    folder = real_results / "fsdp2" / RESULT
    assert reported.returncode == 0, reported.stderr
    assert reported.stdout.strip() == (folder / "report.md").read_text().strip()
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert reported.stderr.strip().endswith("report.html")


def test_the_first_screen_of_the_markdown_holds_the_answers(reported: subprocess.CompletedProcess[str]) -> None:
    screen = "\n".join(reported.stdout.splitlines()[:24])
    for answer in ("fsdp2 vs zero3: 1.28×", "peak memory 743 against 796 MiB", "LIBERO success not shown to be kept"):
        assert answer in screen.replace("\n  ", " ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["report"], "one of: a result, --compare A B, or --published"),
        (["report", RESULT, "--published"], "one of: a result"),
        (["report", RESULT, "--sheets", "failurs"], 'did you mean "failures"'),
        (["report", RESULT, "--table", "speed"], "expected one of the report's tables"),
        (["report", "--compare", RESULT, "nothing"], "RESULT = 'nothing'"),
        (["export", RESULT, "--format", "xls"], "--format = 'xls'"),
        (["history", "fsdp"], 'did you mean "fsdp2"'),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], says: str, typed: Typed, real_results: Path, tmp_path: Path
) -> None:
    answer = typed(*arguments, "--results", str(real_results), cwd=tmp_path)
    assert answer.returncode == 2
    assert says in answer.stderr and answer.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_history_is_written_where_one_stands(typed: Typed, real_results: Path, tmp_path: Path) -> None:
    answer = typed("history", "--results", str(real_results), "--json", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == {
        "folder": "history", "runs": 13, "verdicts": json.loads(answer.stdout)["verdicts"], "episodes": 112,
        "unreadable": {},
    }  # fmt: skip
    assert {file.name for file in (tmp_path / "history").iterdir()} == {
        "runs.parquet", "verdicts.parquet", "episodes.parquet",
    }  # fmt: skip


def test_the_published_table_has_intervals_from_its_counts(typed: Typed, tmp_path: Path) -> None:
    answer = typed("report", "--published", cwd=tmp_path)
    assert answer.returncode == 0
    assert "| DB-PI05-FSDP2   |" in answer.stdout and "94.1–97.6" in answer.stdout  # 481 of 500
    assert "**+11.4 [+7.9, +15.1]**" in answer.stdout


def test_help_of_a_report_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom harness.cli import app\n"
        "try: app(['report', '--help'])\nexcept SystemExit: pass\n"
        "print(','.join(sys.modules), file=sys.stderr)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    heavy = {"torch", "pandas", "matplotlib", "scipy", "jinja2", "pyarrow", "numpy"}
    assert heavy.isdisjoint(answer.stderr.strip().split(","))
