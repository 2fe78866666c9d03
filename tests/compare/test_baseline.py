from __future__ import annotations

import pytest
from comparison_records import a_failed_run, a_plan, a_run, some_results

from harness.compare.baseline import Acceptance, Baseline, accept, gated_values, task_counts
from harness.compare.metrics import METRICS
from harness.compare.results import Results
from harness.errors import BadInput, HarnessError
from harness.plan import RunKind
from harness.train.records import Outcome

PLAN = a_plan()


def an_acceptance(result: str = "r1", reason: str = "first", at: str = "2026-03-01T12:00:00+00:00") -> Acceptance:
    return Acceptance(result=result, at=at, by="someone", reason=reason, command="harness run fsdp2")


def first() -> Baseline:
    return accept(PLAN, some_results(PLAN, "r1"), None, an_acceptance())


def test_raw_values_counts_and_provenance_are_kept() -> None:
    found = first()
    cell = found.cell("pi0-fsdp2", RunKind.TIMING)
    assert cell is not None and len(cell.values["step_seconds"]) == 2
    assert set(cell.values) == {"step_seconds", "peak_resident_bytes", "parameter_bytes"}
    learnt = found.cell("pi0-fsdp2", RunKind.LEARNING)
    assert learnt is not None and set(learnt.values) == {"checkpoint_save_seconds", "checkpoint_bytes"}
    arm = found.arm("pi0-zero3-seed0")
    assert arm is not None and sum(c.valid for c in arm.counts) == 23
    assert found.accepted[-1].subjects[0] == "pi0-zero3"
    assert Baseline.model_validate_json(found.model_dump_json()) == found


def test_accepting_a_part_never_drops_the_rest() -> None:
    second = accept(PLAN, some_results(PLAN, "r2"), first(), an_acceptance("r2"), only=["pi0-fsdp2"])
    assert {c.cell.label for c in second.cells} == {c.cell.label for c in first().cells}
    assert {a.arm for a in second.arms} == {a.arm for a in first().arms}
    cells = {c.cell.label: c.results for c in second.cells if c.kind is RunKind.TIMING}
    assert cells["pi0-fsdp2"] == ["r2"] and cells["pi0-zero3"] == ["r1"]
    assert [a.result for a in second.accepted] == ["r1", "r2"]


def test_a_cell_that_failed_keeps_its_old_values() -> None:
    results = some_results(PLAN, "r2")
    runs = [
        a_failed_run("ddp", Outcome.OOM, r.run.repeat) if r.run.cell.label == "pi0-ddp" else r for r in results.runs
    ]
    second = accept(PLAN, Results("r2", "", runs, results.steps), first(), an_acceptance("r2"))
    ddp = second.cell("pi0-ddp", RunKind.TIMING)
    assert ddp is not None and ddp.results == ["r1"]


def test_extending_adds_processes_and_counts_no_result_twice() -> None:
    more = accept(PLAN, some_results(PLAN, "r2"), first(), an_acceptance("r2"), extend=True)
    cell = more.cell("pi0-zero3", RunKind.TIMING)
    assert cell is not None and len(cell.values["step_seconds"]) == 4 and cell.results == ["r1", "r2"]
    with pytest.raises(BadInput, match="does not hold yet"):
        accept(PLAN, some_results(PLAN, "r2"), more, an_acceptance("r2"), extend=True)


def test_what_cannot_be_accepted_is_refused() -> None:
    results = some_results(PLAN)
    with pytest.raises(BadInput, match="reason"):
        accept(PLAN, results, None, an_acceptance(reason=" "))
    with pytest.raises(BadInput, match='did you mean "pi0-fsdp2"'):
        accept(PLAN, results, None, an_acceptance(), only=["pi0-fsdp"])
    with pytest.raises(HarnessError, match="nothing to accept"):
        accept(PLAN, Results("r", "", []), None, an_acceptance())
    elsewhere = PLAN.model_copy(update={"hardware_key": "8x-nvidia-h100-80gb"})
    with pytest.raises(HarnessError, match="h100"):
        accept(elsewhere, results, first(), an_acceptance())


def test_step_times_of_unsteady_runs_stay_out_and_their_memory_stays_in() -> None:
    run = a_run("zero3")
    assert run.speed is not None
    unsteady = run.model_copy(update={"speed": run.speed.model_copy(update={"steadiness": "UNSTEADY"})})
    assert gated_values(METRICS["step_seconds"], [run, unsteady]) == [run.speed.median_step_seconds]
    assert len(gated_values(METRICS["peak_resident_bytes"], [run, unsteady])) == 2


def test_counts_leave_out_errors_and_uncovered_episodes() -> None:
    counts = task_counts("expert", some_results(PLAN).episodes)
    assert [(c.task_suite, c.task, c.valid) for c in counts] == [("libero_object", 0, 10), ("libero_object", 1, 10)]
