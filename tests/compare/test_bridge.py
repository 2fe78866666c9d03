from __future__ import annotations

import sys
from pathlib import Path

import pytest
from comparison_records import MACHINE, a_plan, a_run, a_speed, some_steps

from harness.compare.baseline import Acceptance, Baseline, accept
from harness.compare.bridge import bridged, carry
from harness.compare.comparison import compare
from harness.compare.gate import compare_with
from harness.compare.results import OLD, Results
from harness.compare.throughput import Finding
from harness.compare.verdict import Verdict
from harness.errors import BadInput, HarnessError, MachineFault
from harness.machine import Fingerprint, fingerprint, fingerprint_under
from harness.plan import RunKind
from harness.train.records import RunRecord

PLAN = a_plan(repeats=4)
TODAY = MACHINE.model_copy(update={"hardware_key": "cpu-today", "versions": {**MACHINE.versions, "torch": "2.14.0"}})
BEFORE = MACHINE.model_copy(update={"hardware_key": "cpu-today"})
BRIDGE = bridged(PLAN.model_copy(update={"hardware_key": "cpu-today"}), "/old/bin/python")


def an_act(result: str = "r") -> Acceptance:
    return Acceptance(result=result, at="2026-02-01T00:00:00+00:00", by="x", reason="new machine", command="z")


def carried() -> Baseline:
    """Made on another machine, with the old software."""
    runs = [a_run(key, repeat=r) for key in ("zero3", "fsdp2") for r in range(4)]
    return accept(PLAN, Results("old", "", runs), None, an_act("old"))


def a_result(slowdown: float = 1.0, before: Fingerprint = BEFORE) -> Results:
    """Both sides of two cells on today's machine, which is twice as fast; the new software slower by a factor."""
    runs: list[RunRecord] = []
    for planned in BRIDGE.runs:
        key = planned.cell.label.removesuffix(OLD).removeprefix("pi0-")
        if key not in ("zero3", "fsdp2"):
            continue
        made, old = a_run(key, repeat=planned.repeat), planned.python is not None
        assert made.speed is not None
        seconds = made.speed.median_step_seconds / 2 * (1.0 if old else slowdown)
        runs.append(
            made.model_copy(
                update={"run": planned, "speed": a_speed(seconds, planned), "fingerprint": before if old else TODAY}
            )
        )
    return Results("bridge", "", runs, {run.run.key: some_steps(run.run.steps) for run in runs})


def test_every_timing_run_has_a_twin_in_its_place() -> None:
    timing = [run for run in PLAN.runs if run.kind is RunKind.TIMING]
    assert len(BRIDGE.runs) == 2 * len(timing)
    assert {run.kind for run in BRIDGE.runs} == {RunKind.TIMING}
    assert len({run.key for run in BRIDGE.runs}) == len(BRIDGE.runs)
    for first, second in zip(BRIDGE.runs[::2], BRIDGE.runs[1::2], strict=True):
        assert first.cell.label.removesuffix(OLD) == second.cell.label.removesuffix(OLD)
        assert first.block == second.block
        assert (first.python is None) == (first.repeat % 2 == 1)


def test_the_twins_are_compared_and_their_versions_are_what_is_compared() -> None:
    found = compare(BRIDGE, a_result(1.2), None, [])
    [twin] = [s for s in found.speedups if s.candidate == "pi0-fsdp2" and s.reference == "pi0-fsdp2" + OLD]
    assert twin.comparable and twin.finding is Finding.SLOWER
    assert twin.speedup is not None and twin.speedup.estimate == pytest.approx(1 / 1.2)
    assert {s.reference for s in found.speedups if s.candidate.startswith("pi0-fsdp2")} == {
        "pi0-zero3",
        "pi0-fsdp2" + OLD,
    }


def test_the_old_side_becomes_the_reference_here_and_nothing_is_scaled() -> None:
    here = carry(carried(), BRIDGE, a_result(), None, an_act())
    assert here.hardware_key == "cpu-today"
    assert {cell.subject for cell in here.cells} == {"pi0-zero3", "pi0-fsdp2"}
    cell, old = here.cell("pi0-fsdp2", RunKind.TIMING), carried().cell("pi0-fsdp2", RunKind.TIMING)
    assert cell is not None and old is not None
    assert cell.values["step_seconds"][0] == pytest.approx(old.values["step_seconds"][0] / 2)
    assert "carried over from cpu-example" in here.history[-1].reason
    slow = [run for run in a_result(1.2).runs if run.run.python is None]
    again = Results("night", "", slow, confirmation_runs=slow)
    judged = compare_with(here, BRIDGE, again)
    steps = {j.subject: j.verdict for j in judged if j.metric == "step_seconds"}
    assert steps == {"pi0-zero3": Verdict.REGRESSED, "pi0-fsdp2": Verdict.REGRESSED}


def test_other_software_on_the_old_side_is_refused_with_its_fields() -> None:
    wrong = BEFORE.model_copy(update={"versions": {**BEFORE.versions, "torch": "2.12.0"}})
    with pytest.raises(BadInput, match=r"torch 2.13.0 → 2.12.0"):
        carry(carried(), BRIDGE, a_result(before=wrong), None, an_act())
    plain = Results("r", "", [run for run in a_result().runs if run.run.python is None])
    with pytest.raises(HarnessError, match="no old side"):
        carry(carried(), BRIDGE, plain, None, an_act())


def test_an_ordinary_acceptance_takes_the_new_side() -> None:
    here = accept(BRIDGE, a_result(1.2), None, an_act())
    assert not [cell for cell in here.cells if cell.subject.endswith(OLD)]


def test_another_interpreter_says_what_it_holds(tmp_path: Path) -> None:
    here = fingerprint()
    assert fingerprint_under(None, here) is here
    assert fingerprint_under(sys.executable, here) == here
    with pytest.raises(MachineFault, match="cannot be started"):
        fingerprint_under(str(tmp_path / "python"), here)
