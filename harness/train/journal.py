"""The files through which a rank tells the launcher how far it is, and what an earlier attempt left. No torch here."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from harness.errors import DamagedRecord
from harness.store import read_lines
from harness.train.records import COMPLETE, StepRow

CHECKPOINTS, EXPORT, LOGS = "checkpoint", "export", "logs"
_STEP_FOLDER = "step-"


def steps_file(attempt: Path, rank: int) -> Path:
    return attempt / f"rank-{rank}.steps.jsonl"


def phase_file(attempt: Path, rank: int) -> Path:
    """Holds the name of what the rank is doing outside of steps; its change is a sign of life."""
    return attempt / f"rank-{rank}.phase"


def phase_of(attempt: Path, rank: int) -> str:
    """What a rank last said it was doing."""
    with contextlib.suppress(FileNotFoundError):
        return phase_file(attempt, rank).read_text(errors="replace") or "starting"
    return "starting"


def report_file(attempt: Path, rank: int) -> Path:
    return attempt / f"rank-{rank}.json"


def failure_file(attempt: Path, rank: int) -> Path:
    return attempt / f"rank-{rank}.failure.json"


def stacks_file(attempt: Path, rank: int) -> Path:
    return attempt / LOGS / f"rank-{rank}.stacks.txt"


def checkpoint_folder(attempt: Path, step: int) -> Path:
    return attempt / CHECKPOINTS / f"{_STEP_FOLDER}{step}"


def checkpoint_step(folder: Path) -> int:
    """How many steps had been made when this checkpoint was written."""
    return int(folder.name.removeprefix(_STEP_FOLDER))


def latest_checkpoint(attempt: Path) -> Path | None:
    """The furthest complete checkpoint of an attempt; cut-off ones do not count."""
    complete = [mark.parent for mark in (attempt / CHECKPOINTS).glob(f"{_STEP_FOLDER}*/{COMPLETE}")]
    return max(complete, key=checkpoint_step, default=None)


def read_rows(file: Path) -> list[StepRow]:
    """A rank's rows so far; a last line without its end is left out. Raises DamagedRecord."""
    return read_lines(file, StepRow)


class Journal:
    """Writes one rank's files. Lines go to the kernel at once, so that they outlive the process. They are synced with
    each checkpoint: what a crash of the machine takes with it is made again from there.
    """

    def __init__(self, attempt: Path, rank: int) -> None:
        self._attempt, self._rank = attempt, rank
        self._steps = steps_file(attempt, rank).open("ab", buffering=0)

    def carry_over(self, checkpoint: Path) -> int:
        """Begins with the rows up to a checkpoint of an earlier attempt; returns how many steps it holds.

        Raises DamagedRecord when the earlier attempt's rows are not all there.
        """
        step = checkpoint_step(checkpoint)
        own, of_first = (steps_file(checkpoint.parents[1], rank) for rank in (self._rank, 0))
        source = own if own.exists() else of_first  # there are more ranks now than there were
        rows = [row for row in read_rows(source) if row.step < step]
        if [row.step for row in rows] != list(range(step)):
            raise DamagedRecord(f"{source}: expected the rows of steps 0 to {step - 1}, found {len(rows)}")
        for row in rows:
            self.add(row.model_copy(update={"resumed": True}))
        return step

    def add(self, row: StepRow) -> None:
        self._steps.write(row.model_dump_json().encode() + b"\n")

    def sync(self) -> None:
        """To be called before a checkpoint is complete: it is worth nothing without the rows before it."""
        os.fsync(self._steps.fileno())

    def phase(self, name: str) -> None:
        phase_file(self._attempt, self._rank).write_text(name)

    def close(self) -> None:
        self._steps.close()
        with contextlib.suppress(FileNotFoundError):
            phase_file(self._attempt, self._rank).unlink()
