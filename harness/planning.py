"""Suite → Plan: every value resolved, every run named and ordered. Pure; no torch, no disk."""

from __future__ import annotations

import math
from typing import Any

from harness.backends.support import unsupported
from harness.errors import BadInput
from harness.plan import Cell, EpisodeKey, Plan, PlannedArm, PlannedRun, RunKind, Unsupported
from harness.suite import Evaluation, Gate, Learning, ModelEntry, Suite, Throughput

TIMING_METRICS = 5
"""Gated figures of a timing run (`harness.compare.metrics`): step time, its ratio to the reference's, two peaks of
memory, parameter bytes."""
CHECKPOINT_STEPS = 4
"""Steps of a run that is started only to see what a checkpoint costs."""


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
    models = list(dict.fromkeys(cell.model_key for cell in cells))
    for repeat in range(throughput.repeats):
        for model in models:
            row = [cell for cell in cells if cell.model_key == model]
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
        return models[cell.model_key].learning_steps or learning.steps

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
        if cell.backend_key in learning.backends
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
