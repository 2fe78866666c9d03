from __future__ import annotations

import io
from dataclasses import replace

import pytest
from comparison_records import a_failed_run, a_plan, some_results
from rich.console import Console

from harness.compare.baseline import Acceptance, accept
from harness.compare.comparison import compare
from harness.compare.results import Results
from harness.report.baselines import baseline_table
from harness.report.terminal import show
from harness.train.records import Outcome

PLAN = a_plan(seeds=3)


def screen(results: Results) -> list[str]:
    console = Console(file=io.StringIO(), width=80, height=24)
    show(compare(PLAN, results, None, []), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def every_run_failed() -> Results:
    good = some_results(PLAN)
    runs = [
        a_failed_run(r.run.cell.label.removeprefix("pi0-"), Outcome.CRASHED, r.run.repeat, r.run.kind)
        for r in good.runs
    ]
    return replace(good, runs=runs, episodes=[])


@pytest.mark.parametrize("make", [lambda: some_results(PLAN), every_run_failed, lambda: Results("r", "", [])])
def test_it_fits_a_plain_terminal(make: object) -> None:
    lines = screen(make())  # type: ignore[operator]
    assert len(lines) <= 23  # the prompt wants one
    assert max(len(line) for line in lines) <= 80


def test_it_says_what_won_and_how_it_ended() -> None:
    lines = screen(some_results(PLAN))
    assert lines[0].startswith("Exit code 11")
    [row] = [line for line in lines if line.startswith("pi0-fsdp2 ")]
    assert row.endswith("1.25× [1.19–1.31]  faster")
    assert any(line.startswith("success pi0: fsdp2 vs zero3 is kept: ") for line in lines)
    assert any(line.startswith("harness report ") for line in lines)


def test_a_baseline_shows_what_it_holds() -> None:
    acceptance = Acceptance(result="r", at="2026-02-01T00:00:00+00:00", by="someone", reason="first", command="c")
    console = Console(file=io.StringIO(), width=120)
    console.print(baseline_table(accept(PLAN, some_results(PLAN), None, acceptance)))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "step_seconds × 2" in text and "17/23 in 5 tasks" in text and "first" in text
