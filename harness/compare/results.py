"""What a comparison is made of, gathered from disk by `harness.store`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.libero.records import ArmRecord, EpisodeRecord
from harness.plan import RunKind
from harness.train.records import Outcome, RunRecord, StepRow


@dataclass(frozen=True)
class Results:
    """Everything one result holds.

    Attributes:
        result_id: name of the result's folder.
        command: the command line that made it.
        runs: the latest attempt of each run.
        steps: `PlannedRun.key` → rows by rising step, one row per step (not one per rank).
        episodes: of all arms; at most one per (arm, key).
    """

    result_id: str
    command: str
    runs: list[RunRecord]
    steps: dict[str, list[StepRow]] = field(default_factory=dict)
    arms: list[ArmRecord] = field(default_factory=list)
    episodes: list[EpisodeRecord] = field(default_factory=list)

    def of(self, label: str, kind: RunKind | None = None) -> list[RunRecord]:
        """Runs of the cell with this label, by repeat."""
        found = (r for r in self.runs if r.run.cell.label == label and kind in (None, r.run.kind))
        return sorted(found, key=lambda record: (record.run.kind, record.run.repeat))

    def labels(self, kind: RunKind | None = None) -> list[str]:
        """Labels of the cells that ran, in the order of the records."""
        return unique(r.run.cell.label for r in self.runs if kind in (None, r.run.kind))


def ended_well(runs: Iterable[RunRecord]) -> list[RunRecord]:
    return [run for run in runs if run.outcome is Outcome.OK]


def unique(names: Iterable[str]) -> list[str]:
    """First occurrences, in order."""
    return list(dict.fromkeys(names))


def groups(labels: list[str], reference: str | None) -> dict[str, list[str]]:
    """Label of each reference cell → labels of the cells it is the reference of.

    Cell labels end with their backend's key: `<model><separator><backend>`. Cells belong together when they share
    what stands before it.
    """
    if reference is None:
        return {}
    references = [label for label in labels if suffix_is(label, reference)]
    stems = {label: label.removesuffix(reference) for label in references}
    found: dict[str, list[str]] = {label: [] for label in references}
    for label in labels:
        owners = [owner for owner, stem in stems.items() if label.startswith(stem) and label != owner]
        if owners and label not in stems:
            found[max(owners, key=lambda owner: len(stems[owner]))].append(label)
    return found


def suffix_is(label: str, key: str) -> bool:
    """Whether a label ends with this backend key as a whole word."""
    stem = label.removesuffix(key)
    return stem != label and (stem == "" or not stem[-1].isalnum())
