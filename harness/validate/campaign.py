"""All rows of a validation, one after the other, in a result that goes on after an interruption."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from harness.errors import HarnessError
from harness.plan import Plan, PlannedRun
from harness.store import ResultFolder, Store, read_record, write_record
from harness.validate.records import Row, Trial, Validation, unsupported_trial
from harness.validate.request import REFERENCE, cell_key
from harness.validate.trial import Trials

_TRIAL_SECONDS = 45.0
"""What a trial takes on a 2-core machine, until one has been seen: two launches of two ranks."""


def open_result(validation: Validation, plan: Plan, store: Store, command: str) -> ResultFolder:
    """The newest result of this very validation if it has rows left, else a new one."""
    for result in reversed(store.results(plan.suite)):
        if not result.validation_file.exists() or read_record(result.plan_file, Plan) != plan:
            continue
        if read_record(result.validation_file, Validation) == validation and rows_left(validation, result):
            return result
    result = store.new_result(plan.suite, plan.digest(), command)
    write_record(result.validation_file, validation)
    write_record(result.plan_file, plan)
    return result


def rows_left(validation: Validation, result: ResultFolder) -> list[Row]:
    return [row for row in validation.rows if not result.trial_file(row.label).exists()]


def read_trials(validation: Validation, result: ResultFolder) -> list[Trial]:
    """Those made so far, in the order of the rows. Raises DamagedRecord."""
    files = [result.trial_file(row.label) for row in validation.rows]
    return [read_record(file, Trial) for file in files if file.exists()]


class Pace:
    """Seconds that are left, from what the trials of this command have taken. Unsupported rows take none."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self._able = {run.cell.label for run in plan.runs}
        self._clock, self._started, self._made = clock, clock(), 0

    def record(self, trial: Trial) -> None:
        self._made += trial.run is not None

    def seconds_left(self, rows: Sequence[Row]) -> float:
        each = (self._clock() - self._started) / self._made if self._made else _TRIAL_SECONDS
        return each * sum(row.label in self._able for row in rows)


def carry_out(
    validation: Validation,
    plan: Plan,
    result: ResultFolder,
    trials: Trials,
    on_group: Callable[[list[Row], list[Row]], None],
) -> Iterator[Trial]:
    """Makes the trials that are left; each is on disk when it is handed out. Ends by clearing up.

    Args:
        on_group: told of rows that are tried together, before they are, and of all that are left with them.
    """
    runs = {run.cell.label: run for run in plan.runs}
    reasons = {cell.label: cell.reason for cell in plan.unsupported}
    left = rows_left(validation, result)
    for together in _groups(validation.rows):
        group = [row for row in together if row in left]
        if not group:
            continue
        on_group(group, left)
        trials.launch_together([runs[row.label] for row in group if row.label in runs])
        for row in group:
            if row.label in reasons:
                trial = unsupported_trial(row, reasons[row.label])
                write_record(result.trial_file(row.label), trial)
            else:
                trial = trials.make(row, runs[row.label], _reference(plan, runs[row.label]))
            left.remove(row)
            yield trial
    failed = {trial.row.label for trial in read_trials(validation, result) if trial.failed}
    for run in plan.runs:
        if run.cell.label not in failed:
            trials.clear(run, exports=True)


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of the same backend and stack, the reference's first."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.backend, row.stack) != (REFERENCE, "native")):
        found.setdefault((row.backend, row.stack), []).append(row)
    return list(found.values())


def _reference(plan: Plan, run: PlannedRun) -> PlannedRun:
    """The reference run of the same model."""
    label = f"{run.cell.model_key}-{cell_key(REFERENCE, 'native')}"
    for other in plan.runs:
        if other.cell.label == label:
            return other
    raise HarnessError(f"{label} cannot run here, and nothing else to hold the losses against")
