"""`harness calibrate` and `harness drill`: what the gate can see here, and whether it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.commands.output import Output
from harness.commands.suites import Request, run_plan
from harness.errors import BadInput, ExitCode, HarnessError
from harness.machine import fingerprint
from harness.store import write_atomically, write_record

if TYPE_CHECKING:
    from harness.compare.drill import DrillRow
    from harness.plan import Plan


@dataclass(frozen=True)
class DrillRequest:
    """
    Attributes:
        real: nights of each kind that are really run.
        nights: nights of each kind that are put together from recorded runs.
        baseline, processes: fresh processes of the baseline, and of a night.
        cell: label of the cell that gets the faults; the last one when left out.
    """

    real: int
    nights: int
    baseline: int
    processes: int
    cell: str | None
    seed: int


def calibrate(request: Request, repeats: int, output: Output) -> None:
    """Times the suite's cells so often (0: only what is stored counts) and says what their noise means."""
    from harness.compare.calibration import calibrate as read_noise
    from harness.drill import CALIBRATION, DRILL, stored_results, timing_plan
    from harness.report.drills import calibration_table

    name, suite, machine = request.suite.stem, request.load(), fingerprint()
    own = f"{name}-{CALIBRATION}"
    plan = timing_plan(own, suite, max(repeats, 1), machine.hardware_key, bool(machine.gpus))
    if repeats:
        run_plan(plan, request.suite.read_text(), Output(output.results, output.baselines, json=False, quiet=True))
    found = stored_results(plan, [name, own, f"{name}-{DRILL}"], output.store)
    if not found:
        raise HarnessError(f"no timing run of {name} is stored for {plan.hardware_key}; give --repeats 10")
    noise = read_noise(name, plan.hardware_key, suite.gate.false_alarm_rate, found, plan.reference)
    write_record(output.store.root / own / "calibration.json", noise)
    if output.json:
        print(noise.model_dump_json(indent=1))
    else:
        print(calibration_table(noise).text())


def drill(request: Request, wanted: DrillRequest, output: Output) -> ExitCode:
    """Runs what is left of the real nights, then resamples; 0 when every promise is kept, 11 when one is broken."""
    from harness.compare.drill import DrillReport, Pool, resampled_rows
    from harness.compare.worse_policies import policy_rows
    from harness.drill import CALIBRATION, DRILL, stored_results, timing_plan
    from harness.report.drills import drill_table

    name, suite, machine = request.suite.stem, request.load(), fingerprint()
    own = f"{name}-{DRILL}"
    plan = timing_plan(own, suite, wanted.processes, machine.hardware_key, bool(machine.gpus))
    rows = _real_rows(request, wanted, plan, output) if wanted.real else []
    found = stored_results(plan, [name, f"{name}-{CALIBRATION}", own], output.store)
    pool = Pool(found, wanted.processes, wanted.baseline)
    rows += resampled_rows(pool, plan, wanted.nights, wanted.seed)
    rows += policy_rows(found, plan, wanted.nights, wanted.seed)
    report = DrillReport(
        suite=name,
        hardware_key=plan.hardware_key,
        results=pool.results,
        baseline_processes=wanted.baseline,
        night_processes=wanted.processes,
        rows=rows,
    )
    write_record(output.store.root / own / "drill.json", report)
    text = drill_table(report).text()
    write_atomically(output.store.root / own / "drill.md", text + "\n")
    print(report.model_dump_json(indent=1) if output.json else text)
    return ExitCode.NOT_SHOWN if any(found.holds is False for found in rows) else ExitCode.OK


def _real_rows(request: Request, wanted: DrillRequest, plan: Plan, output: Output) -> list[DrillRow]:
    """Nights take turns between kinds, so that a change of the machine meets all of them."""
    from harness.display import Display
    from harness.drill import Rehearsal, timing_plan, with_fault
    from harness.run import Workplace

    machine = fingerprint()
    labels = list(dict.fromkeys(run.cell.label for run in plan.runs))
    label = wanted.cell or labels[-1]
    if label not in labels:
        raise BadInput("--cell", None, label, "a cell of the suite", labels)
    reference = timing_plan(plan.suite, request.load(), wanted.baseline, plan.hardware_key, bool(machine.gpus))
    place = Workplace(output.store, output.baseline_folder, machine, "harness drill")
    rehearsal = Rehearsal(reference, plan, label, request.suite.read_text(), place)
    with Display(output.console, plan.workers, quiet=output.quiet) as display:
        rehearsal.baseline_first(display)
        plans = [plan, *(with_fault(plan, label, plant) for plant in rehearsal.plants())]
        for count in range(1, wanted.real + 1):
            for night in plans:
                rehearsal.nights(night, count, display)
    return [rehearsal.row(night) for night in plans]
