"""What a comparison is made of, gathered from disk by `harness.store`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from harness.libero.records import ArmRecord, EpisodeRecord
from harness.plan import RunKind, backend_key, model_key
from harness.train.records import Outcome, RunRecord, StepRow

H = TypeVar("H", bound=Hashable)
OLD = "@old"
"""Ends the label of a cell that ran under the old software of a bridge (`harness.compare.bridge`)."""


@dataclass(frozen=True)
class Results:
    """Everything one result holds.

    Attributes:
        result_id: name of the result's folder.
        command: the command line that made it.
        runs: of each run the latest attempt that ended well, or else the latest.
        set_aside: attempts that ended well and were measured again, because others disturbed their block.
        steps: `PlannedRun.key` → rows by rising step, one row per step (not one per rank).
        episodes: of all arms; at most one per (arm, key).
        confirmation_runs, confirmation_episodes: measured because the first stage of the gate alarmed; they are
            in none of the above.
    """

    result_id: str
    command: str
    runs: list[RunRecord]
    steps: dict[str, list[StepRow]] = field(default_factory=dict)
    arms: list[ArmRecord] = field(default_factory=list)
    episodes: list[EpisodeRecord] = field(default_factory=list)
    confirmation_runs: list[RunRecord] = field(default_factory=list)
    confirmation_episodes: list[EpisodeRecord] = field(default_factory=list)
    set_aside: list[RunRecord] = field(default_factory=list)

    def of(self, label: str, kind: RunKind | None = None) -> list[RunRecord]:
        """Runs of the cell with this label, by repeat."""
        found = (r for r in self.runs if r.run.cell.label == label and kind in (None, r.run.kind))
        return sorted(found, key=lambda record: (record.run.kind, record.run.repeat))

    def labels(self, kind: RunKind | None = None) -> list[str]:
        """Labels of the cells that ran, in the order of the records; the old side of a bridge is none of them."""
        labels = unique(r.run.cell.label for r in self.runs if kind in (None, r.run.kind))
        return [label for label in labels if not label.endswith(OLD)]


def ended_well(runs: Iterable[RunRecord]) -> list[RunRecord]:
    return [run for run in runs if run.outcome is Outcome.OK]


def chosen(attempts: list[RunRecord]) -> RunRecord:
    """Of a run's attempts that have ended, oldest first, the one whose figures count, settled before they are seen: the
    latest that ended well, or else the latest."""
    return (ended_well(attempts) or attempts)[-1]


def unique(names: Iterable[H]) -> list[H]:
    """First occurrences, in order."""
    return list(dict.fromkeys(names))


def without_old(label: str) -> str:
    return label.removesuffix(OLD)


def with_references(labels: Iterable[str], reference: str | None) -> dict[str, list[str]]:
    """Label of each model's reference cell → labels of the same model's other cells.

    The reference is the cell with that backend key. A model without such a cell is left out, except that without
    any reference key the model's first cell stands in. The old side of a bridge is the reference of its new twin alone.
    """
    by_model: dict[str, list[str]] = {}
    every = unique(labels)
    for label in every:
        if not label.endswith(OLD):
            by_model.setdefault(model_key(label), []).append(label)
    found = {}
    for cells in by_model.values():
        first = next((c for c in cells if reference is None or backend_key(c) == reference), None)
        if first is not None:
            found[first] = [c for c in cells if c != first]
    twins = {label: [without_old(label)] for label in every if label.endswith(OLD)}
    return found | twins
