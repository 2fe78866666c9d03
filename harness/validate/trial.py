"""The trial of one model under one backend on one stack: a short run, its twin resumed from the middle, the checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.machine import Fingerprint
from harness.plan import PlannedRun
from harness.store import RUN_FILE, ResultFolder, read_record, remove_folder, write_record
from harness.train.journal import CHECKPOINTS, EXPORT, checkpoint_folder
from harness.train.launch import launch, read_steps
from harness.train.records import COMPLETE, Outcome, RunRecord, RunSpec, StepRow
from harness.validate import checks
from harness.validate.company import launch_together
from harness.validate.records import CHECKS, Answer, Row, Trial
from harness.validate.request import CHECKPOINT_STEP

HANG_SECONDS = 300.0
"""Longer than in `harness run`: nothing is timed here, so the machine may have other work."""


class Trials:
    """Makes the trials of one result.

    An attempt that has ended well is never made again, so that the same command goes on after an interruption.
    """

    def __init__(self, result: ResultFolder, machine: Fingerprint) -> None:
        self._result, self._machine = result, machine

    def make(self, row: Row, run: PlannedRun, reference: PlannedRun) -> Trial:
        """Two launches, or three where the reference has none yet; none of what has ended well before.

        Records the trial, and clears up after one that found nothing wrong. The weights of the reference stay for
        those that are held against it.

        Raises:
            KeyboardInterrupt, DiskFull: as `harness.train.launch.launch`.
        """
        of_reference = self._launched(reference, 1)
        whole = self._launched(run, 1)
        answers: dict[str, Answer] = {"trains": checks.training(whole)}
        attempt, rows = self._attempt(run, 1), self._rows(run, 1)
        answers["parity"] = checks.parity(whole, rows, of_reference, self._rows(reference, 1))
        resumed: RunRecord | None = None
        if whole.outcome is Outcome.OK:
            answers["checkpoint"] = checks.checkpoint(attempt, run.cell, CHECKPOINT_STEP)
            if answers["checkpoint"].outcome == "ok":
                resumed = self._launched(run, 2)
                answers["resume"] = checks.resume(
                    resumed, self._rows(run, 2), rows, (self._attempt(run, 2), attempt), CHECKPOINT_STEP
                )
            answers["export"] = checks.export(attempt, self._attempt(reference, 1), run.cell.precision)
        why = checks.not_reached("it did not train" if whole.outcome is not Outcome.OK else "no checkpoint")
        trial = Trial(
            row=row,
            run=run,
            answers={check: answers.get(check, why) for check in CHECKS},
            resolved_mode=whole.in_force.resolved_mode if whole.in_force else None,
            loss_gap=_gap(rows, self._rows(reference, 1)),
            resume_gap=_gap(self._rows(run, 2), rows) if resumed else None,
            checkpoint_bytes=whole.checkpoint_bytes,
            checkpoint_save_seconds=whole.checkpoint_save_seconds,
            checkpoint_load_seconds=resumed.checkpoint_load_seconds if resumed else None,
        )
        write_record(self._result.trial_file(row.label), trial)
        if not trial.failed:
            self.clear(run, exports=run != reference)
        return trial

    def clear(self, run: PlannedRun, exports: bool) -> None:
        """Removes the checkpoints of a run, and if so asked its weights: records and steps stay."""
        for number in (1, 2):
            attempt = self._attempt(run, number)
            for mark in (attempt / CHECKPOINTS).glob(f"*/{COMPLETE}"):
                mark.unlink()  # first, so that a kill in the middle leaves no checkpoint that looks whole
            remove_folder(attempt / CHECKPOINTS)
            if exports:
                remove_folder(attempt / EXPORT)

    def launch_together(self, runs: Sequence[PlannedRun]) -> None:
        """Both launches of several runs of one backend on one stack, in one process group each.

        It only saves time: `make` launches by itself what is not there then, so a failure is always one of the run's
        own.
        """
        for number in (1, 2):
            missing = [run for run in runs if self._ended_well(run, number) is None and self._startable(run, number)]
            if len(missing) > 1:
                launch_together([self._spec(run, number) for run in missing], self._machine, HANG_SECONDS)

    def _startable(self, run: PlannedRun, number: int) -> bool:
        return number == 1 or (self._middle(run) / COMPLETE).exists()

    def _launched(self, run: PlannedRun, number: int) -> RunRecord:
        """Attempt 1 goes from the first step to the last; attempt 2 goes on from its middle, in fresh processes."""
        ended = self._ended_well(run, number)
        if ended is not None:
            return ended
        spec = self._spec(run, number)
        return launch(spec, self._machine, hang_seconds=HANG_SECONDS, on_step=lambda _: None)

    def _ended_well(self, run: PlannedRun, number: int) -> RunRecord | None:
        file = self._attempt(run, number) / RUN_FILE
        record = read_record(file, RunRecord) if file.exists() else None
        return record if record and record.run == run and record.outcome is Outcome.OK else None

    def _spec(self, run: PlannedRun, number: int) -> RunSpec:
        """Clears the place, too: rows of a try that was cut off would be taken for this one's."""
        attempt = self._attempt(run, number)
        remove_folder(attempt)
        return RunSpec(
            run=run,
            attempt=number,
            seed=run.training_seed,
            folder=str(attempt.resolve()),
            data_folder=run.cell.data.path,
            resume_from=None if number == 1 else str(self._middle(run).resolve()),
            keep_checkpoints=number == 1,
        )

    def _middle(self, run: PlannedRun) -> Path:
        return checkpoint_folder(self._attempt(run, 1), CHECKPOINT_STEP)

    def _attempt(self, run: PlannedRun, number: int) -> Path:
        return self._result.run(run.key) / f"attempt-{number}"

    def _rows(self, run: PlannedRun, number: int) -> list[StepRow]:
        return read_steps(self._attempt(run, number))


def _gap(rows: list[StepRow], others: list[StepRow]) -> float | None:
    """Largest difference of losses; None unless both runs made the same steps with finite losses."""
    if not rows or len(rows) != len(others):
        return None
    gap = checks.loss_gap(rows, others)
    return gap if gap != float("inf") else None
