"""Rehearsals of the gate: its own runs of a suite's cells, some with a fault planted. They never touch a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.compare.comparison import Comparison
from harness.compare.drill import TWICE, DrillRow, row
from harness.compare.results import Results
from harness.compare.verdict import Judgement, Verdict
from harness.display import Display
from harness.errors import BadInput, ExitCode, HarnessError
from harness.plan import Plan, PlannedRun, Plant, RunKind
from harness.planning import make_plan
from harness.reading import read_plan, read_results
from harness.run import Workplace, accept_baseline, carry_out, read_baseline
from harness.store import BaselineFolder, ResultFolder, Store, read_record
from harness.suite import Suite

CALIBRATION, DRILL = "calibrate", "drill"
"""What is added to a suite's name for the results of these commands."""
TRIES = 3
"""Times that a night whose runs failed is gone on with."""


def timing_plan(name: str, suite: Suite, repeats: int, hardware_key: str, cuda: bool) -> Plan:
    """The suite's timing runs alone, so many times. Raises BadInput when it has none, or when a test cannot fire."""
    if suite.throughput is None:
        raise BadInput(name, "throughput", None, "a suite with timing runs; there is nothing to rehearse")
    changes = {
        "purpose": "bench",
        "learning": None,
        "evaluation": None,
        "throughput": suite.throughput.model_copy(update={"repeats": repeats}),
    }
    return make_plan(name, suite.model_copy(update=changes), hardware_key, cuda)


def stored_results(plan: Plan, names: Sequence[str], store: Store) -> list[Results]:
    """Finished results under these names with the plan's cells on its hardware, without a plant; oldest first."""
    cells = {run.cell.identity for run in plan.runs}
    found = []
    for name in names:
        for result in store.results(name):
            made = read_plan(result)
            like = made.hardware_key == plan.hardware_key and {run.cell.identity for run in made.runs} >= cells
            if like and not _plants(made) and result.comparison_file.exists():
                found.append(read_results(result, made))
    return found


def _plants(plan: Plan) -> set[Plant]:
    return {run.planted for run in plan.runs if run.planted is not None}


def with_fault(plan: Plan, label: str, plant: Plant) -> Plan:
    """The plan with a fault in every timing run of one cell, those of the second stage included."""

    def faulty(runs: list[PlannedRun]) -> list[PlannedRun]:
        return [run.model_copy(update={"planted": plant}) if (run.cell.label, run.kind) == at else run for run in runs]

    at = (label, RunKind.TIMING)

    return plan.model_copy(update={"runs": faulty(plan.runs), "confirmations": faulty(plan.confirmations)})


def parse_fault(plan: Plan, text: str) -> tuple[str, Plant]:
    """`pi0-fsdp2=sleep:0.2` as a cell's label and its fault. Raises BadInput."""
    label, _, fault = text.partition("=")
    kind, _, amount = fault.partition(":")
    timed = [run.cell for run in plan.runs if run.kind is RunKind.TIMING]
    labels = list(dict.fromkeys(cell.label for cell in timed if cell.stack == "native"))
    if label not in labels:
        raise BadInput("--plant", None, label, "a cell of the native stack with timing runs", labels)
    try:
        return label, Plant.model_validate({"kind": kind, "amount": float(amount or 0)})
    except ValueError:
        kinds = ("sleep:SHARE", "ballast:MIB", "gradient")
        raise BadInput("--plant", None, fault, "a fault and its amount", kinds) from None


@dataclass(frozen=True)
class Rehearsal:
    """Real nights of one suite.

    Attributes:
        reference: plan whose result becomes the drill's own baseline.
        night: plan of a night without a fault.
        label: the cell that gets the faults.
    """

    reference: Plan
    night: Plan
    label: str
    suite_text: str
    place: Workplace

    def baseline_first(self, display: Display) -> None:
        """Makes the drill's own baseline, unless it is there already."""
        file = self._drill_place.baselines.file(self.night.hardware_key, self.night.suite)
        if file.exists():
            return
        result, _ = carry_out(self.reference, self.suite_text, self._drill_place, display)
        accept_baseline(result, self._drill_place.baselines, "the drill's own reference", None, extend=False)

    def plants(self) -> list[Plant]:
        """A slowdown and a ballast of twice what the baseline can see, and a turned gradient.

        Raises:
            HarnessError: the baseline cannot see any slowdown.
        """
        detectable = self._detectable()
        if "step_seconds" not in detectable:
            raise HarnessError(f"the drill's baseline holds no two step times of {self.label}; raise --baseline")
        found = [Plant(kind="sleep", amount=round(TWICE * (detectable["step_seconds"][0] - 1), 3))]
        for metric in ("peak_allocated_bytes", "peak_resident_bytes"):
            if metric in detectable:
                ratio, size = detectable[metric]
                found.append(Plant(kind="ballast", amount=float(round(TWICE * max((ratio - 1) * size / 2**20, 16)))))
                break
        return [*found, Plant(kind="gradient")]

    def _detectable(self) -> dict[str, tuple[float, float]]:
        """Metric → smallest detectable ratio and reference value, as a night would state them."""
        from harness.compare.gate import compare_with

        [made] = [found for found in self._results(self.reference) if found.comparison_file.exists()][:1]
        results = read_results(made, self.reference)
        repeats = {run.repeat for run in self.night.runs}
        night = replace(results, runs=[run for run in results.runs if run.run.repeat in repeats])
        baseline = read_baseline(self._drill_place.baselines.file(self.night.hardware_key, self.night.suite))
        judged = compare_with(baseline, self.night, night)
        return {
            j.metric: (j.smallest_detectable, j.reference)
            for j in judged
            if j.subject == self.label and j.smallest_detectable is not None and j.reference is not None
        }

    def nights(self, plan: Plan, count: int, display: Display) -> None:
        """Runs nights of this plan until so many have ended; those that have are not run again.

        Raises:
            HarnessError: runs of a night fail again and again.
        """
        for _ in range(count + TRIES):
            if len(self._ended(plan)) >= count:
                return
            carry_out(plan, self.suite_text, self._drill_place, display)
        raise HarnessError(f"{self.place.store.root / plan.suite}: the runs of a night keep failing; see its report")

    def row(self, plan: Plan) -> DrillRow:
        """What the ended nights of a plan were called."""
        comparisons = [read_record(found.comparison_file, Comparison) for found in self._ended(plan)]
        plants = _plants(plan)
        if not plants:
            alarms = sum(any(j.verdict is Verdict.REGRESSED for j in c.judgements) for c in comparisons)
            return row("none (A/A)", "every figure", "real", len(comparisons), alarms, "quiet")
        [plant] = plants
        caught = sum(self._found(plant, comparison) for comparison in comparisons)
        return row(_spoken(plant), self.label, "real", len(comparisons), caught, "caught")

    def _found(self, plant: Plant, comparison: Comparison) -> bool:
        if plant.kind == "gradient":
            parity = [j for j in comparison.judgements if j.question == "parity" and self.label in j.subject]
            return comparison.exit_code is not ExitCode.OK and any(j.verdict is Verdict.INCOMPARABLE for j in parity)
        metrics = ("step_seconds",) if plant.kind == "sleep" else ("peak_allocated_bytes", "peak_resident_bytes")
        mine: list[Judgement] = [j for j in comparison.judgements if j.question == "baseline"]
        return any(j.verdict is Verdict.REGRESSED for j in mine if j.subject == self.label and j.metric in metrics)

    @property
    def _drill_place(self) -> Workplace:
        folder = self.place.store.root / self.night.suite / "baselines"
        return replace(self.place, baselines=BaselineFolder(folder))

    def _results(self, plan: Plan) -> list[ResultFolder]:
        return [found for found in self.place.store.results(plan.suite) if read_plan(found) == plan]

    def _ended(self, plan: Plan) -> list[ResultFolder]:
        return [found for found in self._results(plan) if found.comparison_file.exists()]


def _spoken(plant: Plant) -> str:
    if plant.kind == "sleep":
        return f"sleep, {plant.amount:.1%} of a step"
    return f"ballast, {plant.amount:.0f} MiB a rank" if plant.kind == "ballast" else "gradient of one rank turned"
