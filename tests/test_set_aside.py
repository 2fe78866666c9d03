"""Attempts at one run on disk: which of them counts, what is set aside, and what is to be measured again."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparison_records import a_failed_run, a_plan, a_run

from harness.plan import RunKind
from harness.reading import read_progress, read_results
from harness.store import ResultFolder, write_record
from harness.train.records import HostConditions, Outcome, RunRecord
from harness.work import Train, remaining_work

BUSY = HostConditions(
    load_average=9.0, foreign_cpu_share=0.5, cpu_mhz=None, temperature_celsius=None, foreign_gpu_processes=None
)
PLAN = a_plan(repeats=1, disturbed_repeats=1, arms=[], episodes=[])


@pytest.fixture
def result(tmp_path: Path) -> ResultFolder:
    """All ended well at the first attempt, one run beside somebody else's work."""
    folder = ResultFolder(tmp_path)
    for run in PLAN.runs:
        key = run.cell.label.removeprefix("pi0-")
        changes = {"host": BUSY} if run.key == "pi0-ddp/timing-0" else {}
        record(folder, a_run(key, run.kind, run.repeat, **changes))
    return folder


def record(folder: ResultFolder, run: RunRecord, attempt: int = 1) -> None:
    write_record(
        folder.run(run.run.key) / f"attempt-{attempt}" / "run.json", run.model_copy(update={"attempt": attempt})
    )


def test_the_block_of_a_disturbed_run_is_measured_again(result: ResultFolder) -> None:
    left = remaining_work(PLAN, read_progress(result, PLAN, True))
    assert [(work.run.key, work.attempt) for work in left if isinstance(work, Train)] == [
        (run.key, 2) for run in PLAN.runs if run.kind is RunKind.TIMING
    ]


def test_the_repeat_counts_and_the_first_attempt_is_kept(result: ResultFolder) -> None:
    record(result, a_run("ddp"), attempt=2)
    found = read_results(result, PLAN)
    assert [(run.run.key, run.attempt) for run in found.set_aside] == [("pi0-ddp/timing-0", 1)]
    assert [run.attempt for run in found.of("pi0-ddp", RunKind.TIMING)] == [2]


def test_a_repeat_that_fails_leaves_the_attempt_that_ended_well(result: ResultFolder) -> None:
    record(result, a_failed_run("ddp", Outcome.CRASHED), attempt=2)
    found = read_results(result, PLAN)
    assert found.set_aside == []
    [run] = found.of("pi0-ddp", RunKind.TIMING)
    assert (run.outcome, run.attempt) == (Outcome.OK, 1)
