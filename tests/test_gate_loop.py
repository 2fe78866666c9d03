"""The gate's loop around next_work, with process groups that end at once: what is run again, and what is concluded."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from comparison_records import MACHINE, a_run, a_speed
from rich.console import Console

from harness import run as main_job
from harness.compare.comparison import Comparison
from harness.compare.verdict import Alarms, Verdict
from harness.display import Display
from harness.drill import Rehearsal, parse_fault, timing_plan, with_fault
from harness.errors import BadInput, ExitCode, HarnessError
from harness.plan import Plan, PlannedRun, Plant, RunKind
from harness.store import BaselineFolder, ResultFolder, Store, read_record, write_record
from harness.suite_file import load_suite
from harness.train.records import RunRecord, RunSpec

ROOT = Path(__file__).parents[1]
SUITE = load_suite(ROOT / "suites" / "drill.toml", [])
LABEL = "pi0-fsdp2"


class Machine:
    """Starts no process: writes the record that a group on a machine with little noise would leave."""

    def __init__(self) -> None:
        self.random = random.Random(4)
        self.started: list[str] = []

    def record(self, spec: RunSpec) -> RunRecord:
        run = spec.run
        self.started.append(run.key)
        slow = 1 + run.planted.amount if run.planted is not None and run.planted.kind == "sleep" else 1.0
        seconds = 0.3 * slow * (1 + self.random.gauss(0, 0.002))
        made = a_run(run.cell.label.removeprefix("pi0-"), RunKind.TIMING).model_copy(
            update={"run": run, "attempt": spec.attempt, "speed": a_speed(seconds, run)}
        )
        write_record(Path(spec.folder) / "run.json", made)
        (Path(spec.folder) / "rank-0.steps.jsonl").touch()
        return made

    def launch(self, spec: RunSpec, *_: Any, **__: Any) -> RunRecord:
        return self.record(spec)

    def in_turns(self, specs: list[RunSpec], *_: Any, **__: Any) -> list[RunRecord]:
        return [self.record(spec) for spec in specs]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()
    monkeypatch.setattr(main_job, "launch", found.launch)
    monkeypatch.setattr(main_job, "launch_in_turns", found.in_turns)
    monkeypatch.setattr(main_job, "write_page", lambda *_: None)
    return found


@pytest.fixture
def place(tmp_path: Path) -> main_job.Workplace:
    return main_job.Workplace(Store(tmp_path / "results"), BaselineFolder(tmp_path / "baselines"), MACHINE, "harness x")


def a_plan(repeats: int = 3) -> Plan:
    return timing_plan("drill", SUITE, repeats, MACHINE.hardware_key, cuda=False)


def a_night(plan: Plan, place: main_job.Workplace) -> tuple[ResultFolder, Comparison]:
    time.sleep(1.05)  # a result's name holds the second of its start
    with Display(Console(quiet=True), 1, quiet=True) as display:
        return main_job.carry_out(plan, "", place, display)


def accepted(place: main_job.Workplace, repeats: int = 10) -> None:
    result, comparison = a_night(a_plan(repeats), place)
    assert comparison.exit_code is ExitCode.NOT_SHOWN  # no baseline yet
    main_job.accept_baseline(result, place.baselines, "first", None, extend=False)


def of(comparison: Comparison, metric: str) -> Verdict:
    [found] = [j for j in comparison.judgements if (j.question, j.subject, j.metric) == ("baseline", LABEL, metric)]
    return found.verdict


def test_a_quiet_night_measures_nothing_again(machine: Machine, place: main_job.Workplace) -> None:
    accepted(place)
    machine.started.clear()
    result, comparison = a_night(a_plan(), place)
    assert len(machine.started) == 6
    assert read_record(result.alarms_file, Alarms).alarms == []
    assert of(comparison, "step_seconds") is Verdict.PASS


def test_a_slow_night_is_measured_again_before_it_is_called_worse(machine: Machine, place: main_job.Workplace) -> None:
    accepted(place)
    machine.started.clear()
    result, comparison = a_night(with_fault(a_plan(), LABEL, Plant(kind="sleep", amount=0.2)), place)
    assert len(machine.started) == len(set(machine.started)) == 12
    alarmed = {(alarm.subject, alarm.metric) for alarm in read_record(result.alarms_file, Alarms).alarms}
    assert alarmed == {(LABEL, "step_seconds"), (LABEL, "step_ratio")}
    assert of(comparison, "step_seconds") is of(comparison, "step_ratio") is Verdict.REGRESSED
    assert comparison.exit_code is ExitCode.REGRESSED
    with pytest.raises(HarnessError, match="never a reference"):
        main_job.accept_baseline(result, place.baselines, "hide it", None, extend=False)


def test_a_fault_in_the_first_stage_alone_is_not_called_worse(machine: Machine, place: main_job.Workplace) -> None:
    accepted(place)
    faulty = with_fault(a_plan(), LABEL, Plant(kind="sleep", amount=0.2))
    passing = faulty.model_copy(update={"confirmations": a_plan().confirmations})
    _, comparison = a_night(passing, place)
    assert of(comparison, "step_seconds") is Verdict.PASS
    assert comparison.exit_code is not ExitCode.REGRESSED


def test_a_rehearsal_has_its_own_baseline_and_counts_its_nights(machine: Machine, place: main_job.Workplace) -> None:
    rehearsal = Rehearsal(a_plan(6), a_plan(3), LABEL, "", place)
    with Display(Console(quiet=True), 1, quiet=True) as display:
        rehearsal.baseline_first(display)
        sleep = next(plant for plant in rehearsal.plants() if plant.kind == "sleep")
        assert sleep.amount >= 0.1  # twice the 5 % that matter
        plans = [a_plan(3), with_fault(a_plan(3), LABEL, sleep)]
        for plan in plans:
            time.sleep(1.05)
            rehearsal.nights(plan, 1, display)
    started = len(machine.started)
    with Display(Console(quiet=True), 1, quiet=True) as display:
        rehearsal.baseline_first(display)
        rehearsal.nights(plans[0], 1, display)
    assert len(machine.started) == started
    quiet, caught = (rehearsal.row(plan) for plan in plans)
    assert (quiet.source, quiet.nights, quiet.called) == ("real", 1, 0)
    assert (caught.nights, caught.called, caught.holds) == (1, 1, True)
    assert place.baselines.files() == []


def test_a_planned_run_keeps_its_fault_through_every_record() -> None:
    plant = Plant(kind="ballast", amount=64)
    plan = with_fault(a_plan(), LABEL, plant)
    again = Plan.model_validate_json(plan.model_dump_json())
    assert again == plan
    planted: list[PlannedRun] = [run for run in [*again.runs, *again.confirmations] if run.planted]
    assert {run.cell.label for run in planted} == {LABEL}
    assert len(planted) == 6


def test_a_fault_is_read_from_the_command_line() -> None:
    assert parse_fault(a_plan(), "pi0-fsdp2=sleep:0.2") == (LABEL, Plant(kind="sleep", amount=0.2))
    assert parse_fault(a_plan(), "pi0-zero3=gradient") == ("pi0-zero3", Plant(kind="gradient"))
    for wrong in ("pi0-fsdp3=sleep:0.2", "pi0-fsdp2=nap:0.2", "pi0-fsdp2=sleep:much", "pi0-fsdp2=sleep:-1"):
        with pytest.raises(BadInput, match="--plant"):
            parse_fault(a_plan(), wrong)
