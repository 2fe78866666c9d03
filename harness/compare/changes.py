"""What accepting a result would do to a baseline: the review before the commit."""

from __future__ import annotations

from typing import Literal

from harness.compare.baseline import Acceptance, Baseline, CellBaseline, accept
from harness.compare.gate import differing_fields
from harness.compare.results import Results
from harness.plan import Plan
from harness.records import Value


class Change(Value):
    """One metric of one entry."""

    subject: str
    metric: str
    act: Literal["new", "replaced", "extended", "kept"]
    """`kept`: the result does not touch it."""
    old: list[float]
    """Raw figures; for success the rate of each task."""
    new: list[float]
    differs: list[str]
    """Fields of the workload or protocol that are not the old ones: older results become INCOMPARABLE."""


def changes(baseline: Baseline | None, plan: Plan, results: Results, extend: bool = False) -> list[Change]:
    """What `accept` would do with all of a result, without doing it. Raises as `accept` does."""
    trial = Acceptance(result=results.result_id, at="1970-01-01T00:00:00+00:00", by="–", reason="a trial", command="–")
    after = accept(plan, results, baseline, trial, extend=extend)
    found: list[Change] = []
    for cell in after.cells:
        before = baseline.cell(cell.subject, cell.kind) if baseline else None
        differs = differing_fields(before.cell.model_dump(), cell.cell.model_dump()) if before else []
        old = before.values if before else {}
        for metric, values in cell.values.items():
            act = _act(before is not None, before == cell, extend)
            found.append(_change(cell, metric, act, old.get(metric, []), values, differs))
    for arm in after.arms:
        earlier = baseline.arm(arm.arm) if baseline else None
        differs = differing_fields(earlier.protocol.model_dump(), arm.protocol.model_dump()) if earlier else []
        found.append(
            Change(
                subject=arm.subject,
                metric="success_rate",
                act=_act(earlier is not None, earlier == arm, extend),
                old=[c.successes / c.valid for c in earlier.counts] if earlier else [],
                new=[c.successes / c.valid for c in arm.counts],
                differs=differs,
            )
        )
    return found


def _act(known: bool, same: bool, extend: bool) -> Literal["new", "replaced", "extended", "kept"]:
    if not known:
        return "new"
    if same:
        return "kept"
    return "extended" if extend else "replaced"


def _change(
    cell: CellBaseline,
    metric: str,
    act: Literal["new", "replaced", "extended", "kept"],
    old: list[float],
    new: list[float],
    differs: list[str],
) -> Change:
    return Change(subject=cell.subject, metric=f"{cell.kind} {metric}", act=act, old=old, new=new, differs=differs)
