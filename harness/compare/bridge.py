"""Carrying a baseline over a change of hardware or software: old and new side by side on the machine of today.

Old figures are never scaled. The old software is run again where the new one runs, in the same blocks, and what it
does there becomes the reference under the new hardware key; the new software is then judged against that.
"""

from __future__ import annotations

from harness.compare.baseline import Acceptance, Baseline, accept
from harness.compare.gate import differing_fields
from harness.compare.results import OLD, Results, without_old
from harness.errors import BadInput, HarnessError
from harness.plan import Plan, PlannedRun, RunKind
from harness.train.records import RunRecord

SOFTWARE = ("torch", "deepspeed", "transformers", "accelerate", "numpy")
"""Versions in which the old side must be the software that the carried baseline was measured with."""


def bridged(plan: Plan, python: str) -> Plan:
    """The plan's timing runs, each with a twin under another interpreter in the same place of its block.

    Args:
        python: interpreter of an environment that holds the old software; the harness itself stays the same.
    """
    runs: list[PlannedRun] = []
    for run in plan.runs:
        if run.kind is RunKind.TIMING:
            cell = run.cell.model_copy(update={"label": run.cell.label + OLD})
            twin = run.model_copy(update={"cell": cell, "python": python})
            runs += [twin, run] if run.repeat % 2 == 0 else [run, twin]
    if not runs:
        raise BadInput(plan.suite, "throughput", None, "timing runs: only these are bridged")
    nothing: dict[str, object] = {
        "arms": [],
        "episodes": [],
        "evaluation": None,
        "confirmations": [],
        "confirmation_episodes": [],
    }
    return plan.model_copy(update={"runs": runs, "purpose": "bench", **nothing})


def carry(
    carried: Baseline, plan: Plan, results: Results, existing: Baseline | None, acceptance: Acceptance
) -> Baseline:
    """Makes the old side of a bridged result the reference here. What else `existing` holds stays.

    Args:
        carried: the baseline made with the old software, of whatever machine.

    Raises:
        HarnessError: the result has no old side.
        BadInput: the old side is not the software, or not the work, of the carried baseline; the fields are named.
    """
    old_runs = [run for run in results.runs if run.run.cell.label.endswith(OLD)]
    if not old_runs:
        raise HarnessError(f"{results.result_id} has no old side: make it with `harness gate SUITE --bridge PYTHON`")
    runs = [_renamed(run) for run in old_runs]
    for run in runs:
        _check_same(carried, run)
    side = Results(results.result_id, results.command, runs, results.steps)
    why = f"{acceptance.reason}; carried over from {carried.hardware_key}, {carried.history[-1].at}"
    return accept(plan, side, existing, acceptance.model_copy(update={"reason": why}))


def _renamed(run: RunRecord) -> RunRecord:
    cell = run.run.cell.model_copy(update={"label": without_old(run.run.cell.label)})
    return run.model_copy(update={"run": run.run.model_copy(update={"cell": cell})})


def _check_same(carried: Baseline, run: RunRecord) -> None:
    label = run.run.cell.label
    entry = carried.cell(label, RunKind.TIMING)
    if entry is None:
        known = [cell.subject for cell in carried.cells]
        raise BadInput("--bridge", None, label, "a cell that the carried baseline holds", known)
    unlike = differing_fields(entry.cell.model_dump(exclude={"label"}), run.run.cell.model_dump(exclude={"label"}))
    before, now = ({n: v.get(n) for n in SOFTWARE} for v in (entry.fingerprint.versions, run.fingerprint.versions))
    unlike += differing_fields(before, now)
    if unlike:
        raise BadInput("--bridge", label, ", ".join(unlike), "the old software and the same work on the old side")
