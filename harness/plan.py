"""Suite → Plan: every value resolved, every run named and ordered. Pure; no torch, no disk."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from harness.backends.options import BackendOptions
from harness.backends.support import unsupported
from harness.errors import BadInput
from harness.records import Record, Value
from harness.suite import CellSettings, Data, Evaluation, EvaluationSuite, Gate, Learning, ModelEntry, Suite, Throughput

TIMING_METRICS = 5
"""Gated figures of a timing run (`harness.compare.metrics`): step time, its ratio to the reference's, two peaks of
memory, parameter bytes."""
CHECKPOINT_STEPS = 4
"""Steps of a run that is started only to see what a checkpoint costs."""


class Cell(CellSettings):
    """Everything that makes a training run what it is. Its identity is `identity`; the label is for people."""

    label: str
    model: str
    size: str
    init: str | None = None
    """Where the initial weights come from; None: fresh from the seed."""
    backend: BackendOptions
    data: Data

    @property
    def identity(self) -> str:
        return self.digest(exclude={"label"})

    @property
    def training_identity(self) -> str:
        """Without how the samples of a step are spread: what must be equal to resume on another number of ranks."""
        return self.digest(exclude={"label", "ranks", "micro_batch", "accumulation"})

    @property
    def samples_per_step(self) -> int:
        """Global batch: samples over all ranks and accumulation steps."""
        return self.ranks * self.micro_batch * self.accumulation


class RunKind(StrEnum):
    TIMING = "timing"
    LEARNING = "learning"


class Plant(Value):
    """A fault put into a run on purpose, to see whether the gate finds it (`harness drill`).

    It travels with the run into every record, so that a planted run is never taken for a measurement.
    """

    kind: Literal["sleep", "ballast", "gradient"]
    """`sleep`: every step lasts longer by a share. `ballast`: each rank holds so many MiB more. `gradient`: the
    first rank's gradients have the wrong sign."""
    amount: float = Field(default=0.0, ge=0)
    """Share of the step, or MiB; nothing to `gradient`."""


class PlannedRun(Value):
    """One fresh process group to be started."""

    cell: Cell
    kind: RunKind
    repeat: int
    """Timing runs: which repeat. Learning runs: the index of the training seed."""
    training_seed: int
    steps: int
    warmup_steps: int = 0
    checkpoint_every: int | None = None
    planted: Plant | None = None
    python: str | None = None
    """Interpreter of another environment, for the old side of a bridge; None: the harness's own."""
    block: str | None = None
    """Runs of one block are alive together and take turns. None: the run has the machine to itself."""
    turn_steps: int | None = None
    """Steps of a turn; None without a block."""

    @property
    def key(self) -> str:
        """Unique in its plan, and fit for a folder name."""
        return f"{self.cell.label}/{self.kind}-{self.repeat}"


class Unsupported(Value):
    """A cell that this backend or machine cannot run, and why. It is shown, and spoils nothing."""

    label: str
    reason: str


class EpisodeKey(Value):
    """What an episode depends on, besides the policy. Pairs are made by this key."""

    task_suite: EvaluationSuite
    task: int
    initial_state: int
    seed: int


class PlannedArm(Value):
    """A policy to evaluate: a learning run's checkpoint, or a control."""

    name: str
    """`expert`, `still`, `expert:…` with a handicap, or the learnt cell's label with its training seed, and with an
    ending of `BLINDED` where it is kept from seeing something."""
    run_key: str | None = None
    """The learning run whose export is the policy; None for controls."""
    checkpoint: str | None = None
    """An export folder given by hand, when there is no such run."""
    url: str | None = None
    """A policy server, see `harness.policies.remote`."""


class Plan(Record):
    """What will be done, in order, with nothing left to defaults. Saved beside its results."""

    SCHEMA = 1
    suite: str
    purpose: Literal["bench", "gate"]
    seed: int
    hardware_key: str
    """Where it runs. A result is never continued on another kind of machine."""
    nodes: int = 1
    """Hosts over which the ranks of a run are spread."""
    order_note: str | None = None
    """Why timing runs take no turns where the suite asks for them."""
    runs: list[PlannedRun]
    unsupported: list[Unsupported]
    reference: str | None
    """Backend key every speedup is against."""
    disturbed_repeats: int = 0
    """`Throughput.disturbed_repeats`; 0 in plans made before there was such a thing."""
    arms: list[PlannedArm]
    episodes: list[EpisodeKey]
    evaluation: Evaluation | None
    gate: Gate
    confirmations: list[PlannedRun] = []
    """Fresh processes for what the first stage of the gate calls worse; run only then."""
    confirmation_episodes: list[EpisodeKey] = []
    """Likewise fresh episodes: the same initial states under another seed."""

    @property
    def data(self) -> Data:
        """All cells of a suite train on the same episodes; how they are read is each cell's own matter."""
        return self.runs[0].cell.data if self.runs else Data()

    @property
    def workers(self) -> int:
        """Simulator processes."""
        return self.evaluation.workers if self.evaluation else Evaluation.model_fields["workers"].default

    @property
    def needs_demonstrations(self) -> bool:
        return any(run.cell.data.source == "expert" for run in self.runs)


def make_plan(name: str, suite: Suite, hardware_key: str, cuda: bool, nodes: int = 1) -> Plan:
    """Resolves a suite for one machine.

    Args:
        name: what the suite's results are filed under.
        hardware_key: `Fingerprint.hardware_key` of this machine.
        cuda: whether the ranks will have a GPU each.
        nodes: hosts over which the ranks of a run are spread; `hardware_key` is of all of them together.

    Raises:
        BadInput: two cells cannot be compared, or (purpose "gate") a test cannot fire with its repeats.
    """
    cells = [_cell(suite, model, backend) for model in suite.models for backend in suite.backends]
    reasons = {
        cell.label: suite.unsupported.get(cell.label) or unsupported(cell, cuda) or _uneven(cell, nodes)
        for cell in cells
    }
    able = [cell for cell in cells if reasons[cell.label] is None]
    in_turns, order_note = _order(suite.throughput, cuda, nodes)
    timing = _timing_runs(suite.throughput, able, suite.seed, in_turns) if suite.throughput else []
    learning = _learning_runs(suite.learning, able, suite.models) if suite.learning else []
    if suite.throughput and suite.purpose == "gate":
        _refuse_blind_gate(name, suite.throughput, suite.gate, TIMING_METRICS * len(able))
    return Plan(
        suite=name,
        purpose=suite.purpose,
        seed=suite.seed,
        hardware_key=hardware_key,
        nodes=nodes,
        order_note=order_note,
        runs=timing + learning,
        unsupported=[Unsupported(label=label, reason=reason) for label, reason in reasons.items() if reason],
        reference=suite.throughput.reference if suite.throughput else None,
        disturbed_repeats=suite.throughput.disturbed_repeats if suite.throughput else 0,
        arms=_arms(suite.evaluation, learning) if suite.evaluation else [],
        episodes=planned_episodes(suite.evaluation, suite.seed) if suite.evaluation else [],
        evaluation=suite.evaluation,
        gate=suite.gate,
        confirmations=_confirmations(timing, learning),
        confirmation_episodes=planned_episodes(suite.evaluation, suite.seed + 1) if suite.evaluation else [],
    )


def _confirmations(timing: list[PlannedRun], learning: list[PlannedRun]) -> list[PlannedRun]:
    """The timing runs once more, numbered on; of learning runs as much as gives a checkpoint's figures."""
    repeats = 1 + max((run.repeat for run in timing), default=-1)
    again = [
        run.model_copy(
            update={
                "repeat": run.repeat + repeats,
                "block": f"{run.block} confirmation" if run.block is not None else None,
            }
        )
        for run in timing
    ]
    seeds = 1 + max((run.repeat for run in learning), default=-1)
    short = {"steps": CHECKPOINT_STEPS, "warmup_steps": 1, "checkpoint_every": CHECKPOINT_STEPS}
    return again + [run.model_copy(update={"repeat": run.repeat + seeds, **short}) for run in learning]


def _cell(suite: Suite, model: str, backend: str) -> Cell:
    entry, chosen = suite.models[model], suite.backends[backend]
    layers = [
        suite.defaults.model_dump(exclude_unset=True),
        entry.model_dump(exclude_unset=True, exclude={"model", "size", "init", "reading", "learning_steps"}),
        chosen.settings.model_dump(exclude_unset=True),
    ]
    settings: dict[str, Any] = {}
    for layer in layers:
        settings = _merged(settings, layer)
    return Cell(
        label=f"{model}-{backend}",
        model=entry.model,
        size=entry.size,
        init=entry.init,
        backend=chosen.options,
        data=suite.data.model_copy(update=entry.reading.model_dump(exclude_unset=True) if entry.reading else {}),
        **settings,
    )


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` wins; tables are merged key by key."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _uneven(cell: Cell, nodes: int) -> str | None:
    return f"{cell.ranks} ranks cannot be spread evenly over {nodes} nodes" if cell.ranks % nodes else None


def _order(throughput: Throughput | None, cuda: bool, nodes: int) -> tuple[bool, str | None]:
    """Whether timing runs take turns, and if they do not though they were meant to, why."""
    meant = throughput is not None and (throughput.order or ("abba" if cuda else "turns")) == "turns"
    if meant and nodes > 1:
        return False, (
            f"runs over {nodes} nodes stand in ABBA blocks: turns are given to process groups that are alive together "
            "on one host"
        )
    return meant, None


def _timing_runs(throughput: Throughput, cells: list[Cell], seed: int, turns: bool) -> list[PlannedRun]:
    """Every second repeat goes through a model's cells backwards (ABBA), so that a steady drift of the machine
    cancels within each pair of repeats, for every pair of cells at once. In turns, a repeat is a block besides."""
    runs = []
    models = list(dict.fromkeys(cell.label.split("-", 1)[0] for cell in cells))
    for repeat in range(throughput.repeats):
        for model in models:
            row = [cell for cell in cells if cell.label.split("-", 1)[0] == model]
            together = turns and len(row) > 1
            for cell in row if repeat % 2 == 0 else reversed(row):
                runs.append(
                    PlannedRun(
                        cell=cell,
                        kind=RunKind.TIMING,
                        repeat=repeat,
                        training_seed=seed,
                        steps=throughput.steps + throughput.warmup_steps,
                        warmup_steps=throughput.warmup_steps,
                        block=f"{model}/{repeat}" if together else None,
                        turn_steps=throughput.turn_steps if together else None,
                    )
                )
    return runs


def _learning_runs(learning: Learning, cells: list[Cell], models: dict[str, ModelEntry]) -> list[PlannedRun]:
    changes = {
        key: value
        for key, value in (("micro_batch", learning.micro_batch), ("optimizer", learning.optimizer))
        if value is not None
    }

    def steps(cell: Cell) -> int:
        return models[cell.label.split("-", 1)[0]].learning_steps or learning.steps

    return [
        PlannedRun(
            cell=cell.model_copy(update=changes),
            kind=RunKind.LEARNING,
            repeat=index,
            training_seed=seed,
            steps=steps(cell),
            warmup_steps=min(5, steps(cell) - 1),
            checkpoint_every=learning.checkpoint_every,
        )
        for index, seed in enumerate(learning.training_seeds)
        for cell in cells
        if cell.label.split("-", 1)[1] in learning.backends
    ]


def _arms(evaluation: Evaluation, learning: list[PlannedRun]) -> list[PlannedArm]:
    arms: list[PlannedArm] = []
    for arm in dict.fromkeys(evaluation.arms):
        if arm.startswith("learned"):
            ending = arm.removeprefix("learned")
            for run in learning:
                arms.append(PlannedArm(name=f"{run.cell.label}-seed{run.training_seed}{ending}", run_key=run.key))
        else:
            arms.append(PlannedArm(name=arm))
    return arms


def planned_episodes(evaluation: Evaluation, seed: int) -> list[EpisodeKey]:
    keys = [
        EpisodeKey(task_suite=scope.task_suite, task=task, initial_state=state, seed=seed)
        for scope in evaluation.scopes
        for task in scope.tasks
        for state in scope.states()
    ]
    return list(dict.fromkeys(keys))


def _refuse_blind_gate(name: str, throughput: Throughput, gate: Gate, tests: int) -> None:
    """A gate whose test could not find the effect that matters would be green for ever."""
    from harness.statistics.power import processes_needed

    effect, noise = gate.smallest_effect.step_seconds, gate.run_noise / math.sqrt(2)
    needed = processes_needed(1 + effect, noise, gate.false_alarm_rate / tests)
    if needed is None or needed > throughput.repeats:
        raise BadInput(
            name,
            "throughput.repeats",
            throughput.repeats,
            f"at least {needed}, so that a step slower by {effect:.0%} can be told at a false-alarm rate of "
            f"{gate.false_alarm_rate:g} when like runs differ by {gate.run_noise:.1%} (gate.run_noise)",
        )
