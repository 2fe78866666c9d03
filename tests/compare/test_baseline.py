from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from comparison_records import a_failed_run, a_plan, a_run, some_results
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare.baseline import Acceptance, Baseline, Expiry, accept, expire, task_counts
from harness.compare.changes import changes
from harness.compare.gated import gated_values
from harness.compare.metrics import METRICS
from harness.compare.results import Results
from harness.errors import BadInput, HarnessError
from harness.plan import Plant, RunKind
from harness.store import BaselineFolder, read_record
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
    assert set(cell.values) == {"step_ratio", "step_seconds", "peak_resident_bytes", "parameter_bytes"}
    learnt = found.cell("pi0-fsdp2", RunKind.LEARNING)
    assert learnt is not None and set(learnt.values) == {"checkpoint_save_seconds", "checkpoint_bytes"}
    arm = found.arm("pi0-zero3-seed0")
    assert arm is not None and sum(c.valid for c in arm.counts) == 23
    assert found.history[-1].subjects[0] == "pi0-zero3"
    assert Baseline.model_validate_json(found.model_dump_json()) == found


def test_accepting_a_part_never_drops_the_rest() -> None:
    second = accept(PLAN, some_results(PLAN, "r2"), first(), an_acceptance("r2"), only=["pi0-fsdp2"])
    assert {c.cell.label for c in second.cells} == {c.cell.label for c in first().cells}
    assert {a.arm for a in second.arms} == {a.arm for a in first().arms}
    cells = {c.cell.label: c.results for c in second.cells if c.kind is RunKind.TIMING}
    assert cells["pi0-fsdp2"] == ["r2"] and cells["pi0-zero3"] == ["r1"]
    assert [a.result for a in second.history] == ["r1", "r2"]


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


def test_extending_adds_episodes_of_the_same_protocol_task_by_task() -> None:
    more = accept(PLAN, some_results(PLAN, "r2"), first(), an_acceptance("r2"), extend=True)
    once, twice = first().arm("pi0-zero3-seed0"), more.arm("pi0-zero3-seed0")
    assert once is not None and twice is not None
    assert [(c.task, c.valid) for c in twice.counts] == [(c.task, 2 * c.valid) for c in once.counts]


def test_a_changed_value_or_another_machine_breaks_the_seal() -> None:
    found = first()
    assert all(found.intact(entry) for entry in [*found.cells, *found.arms])
    again = Baseline.model_validate_json(found.model_dump_json())
    assert all(again.intact(entry) for entry in [*again.cells, *again.arms])
    cell = found.cells[0]
    faster = {name: [value * 0.9 for value in values] for name, values in cell.values.items()}
    assert not found.intact(cell.model_copy(update={"values": faster}))
    assert not found.model_copy(update={"hardware_key": "another"}).intact(cell)


def test_a_planted_run_is_never_a_reference() -> None:
    results = some_results(PLAN)
    slowed = results.runs[0].run.model_copy(update={"planted": Plant(kind="sleep", amount=0.2)})
    runs = [results.runs[0].model_copy(update={"run": slowed}), *results.runs[1:]]
    with pytest.raises(HarnessError, match="a drill is never a reference"):
        accept(PLAN, Results("r", "", runs), None, an_acceptance())


def test_an_expiry_is_of_the_named_entries_and_ends_with_the_next_acceptance() -> None:
    why = Expiry(at="2026-03-02T00:00:00+00:00", by="someone", reason="new driver")
    ended = expire(first(), why, only=["pi0-fsdp2"])
    assert {cell.subject for cell in ended.cells if cell.expired} == {"pi0-fsdp2"}
    assert ended.history[-1].act == "expired"
    assert all(ended.intact(cell) for cell in ended.cells)
    again = accept(PLAN, some_results(PLAN, "r2"), ended, an_acceptance("r2"), only=["pi0-fsdp2"])
    assert not any(cell.expired for cell in again.cells)
    with pytest.raises(BadInput, match="reason"):
        expire(first(), why.model_copy(update={"reason": ""}))
    with pytest.raises(BadInput, match='did you mean "pi0-fsdp2"'):
        expire(first(), why, only=["pi0-fsdp"])


def test_changes_say_what_accepting_would_do() -> None:
    results = some_results(PLAN, "r2")
    runs = [run for run in results.runs if run.run.cell.label != "pi0-ddp"]
    found = changes(first(), PLAN, Results("r2", "", runs, arms=results.arms, episodes=results.episodes))
    acts = {(change.subject, change.act) for change in found}
    assert ("pi0-ddp", "kept") in acts and ("pi0-fsdp2", "replaced") in acts
    assert {change.act for change in changes(None, PLAN, results)} == {"new"}
    assert {change.act for change in changes(first(), PLAN, results, extend=True)} == {"extended"}


@given(st.lists(st.sets(st.sampled_from(["pi0-zero3", "pi0-zero2", "pi0-fsdp2", "pi0-ddp"]), min_size=1), max_size=4))
@settings(max_examples=20, deadline=None)
def test_no_order_of_partial_acceptances_drops_anything(parts: list[set[str]]) -> None:
    found = first()
    for number, part in enumerate(parts):
        found = accept(PLAN, some_results(PLAN, f"p{number}"), found, an_acceptance(f"p{number}"), only=sorted(part))
        assert {c.subject for c in found.cells} == {c.subject for c in first().cells}
        assert {a.subject for a in found.arms} == {a.subject for a in first().arms}
        assert len(found.history) == number + 2


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from comparison_records import a_plan, some_results
from harness.run import accept_results
from harness.store import BaselineFolder
plan = a_plan()
cell, number = sys.argv[3], sys.argv[4]
for turn in range(3):
    results = some_results(plan, f"{cell}-{turn}")
    accept_results(plan, results, BaselineFolder(Path(sys.argv[2])), f"{cell} {turn}", [cell], extend=True)
"""


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    labels = ["pi0-zero3", "pi0-zero2", "pi0-fsdp2", "pi0-ddp"]
    here = str(Path(__file__).parent)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, here, str(tmp_path), label, str(n)])
        for n, label in enumerate(labels)
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * len(labels)
    [file] = BaselineFolder(tmp_path).files()
    found = read_record(file, Baseline)
    assert len(found.history) == 3 * len(labels)
    timing = {c.subject: c for c in found.cells if c.kind is RunKind.TIMING}
    assert {label: len(timing[label].values["step_seconds"]) for label in labels} == dict.fromkeys(labels, 6)
    assert all(found.intact(cell) for cell in found.cells)
