"""Following a running process group through its files: steps as they come, signs of life, stacks of the stuck."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

from harness.processes import descendants
from harness.train.journal import phase_file, stacks_file, steps_file
from harness.train.meter import merge_ranks
from harness.train.records import StepRow

_STACK_SECONDS = 3.0
"""How long the ranks are given to write their stacks."""


class StepsFollower:
    """Reads what the ranks append, and hands on each step once, when all ranks have finished it."""

    def __init__(self, attempt: Path, ranks: int) -> None:
        self._ranks = ranks
        self._files = [steps_file(attempt, rank) for rank in range(ranks)]
        self._phase_files = [phase_file(attempt, rank) for rank in range(ranks)]
        self._offsets, self._cut_off = [0] * ranks, [b""] * ranks
        self._pending: dict[int, list[StepRow]] = {}
        self._phases: list[str] = []
        self.steps = 0
        """How many steps were handed on."""

    def poll(self, on_step: Callable[[StepRow], None]) -> bool:
        """Calls `on_step` with each newly finished step. True when some rank has shown a sign of life."""
        if any([self._read(rank, on_step) for rank in range(self._ranks)]):
            return True
        phases = [_text(file) for file in self._phase_files]
        changed, self._phases = phases != self._phases, phases
        return changed

    def phase(self, rank: int) -> str:
        """What a rank last said it was doing."""
        return (self._phases[rank] if self._phases else "") or "starting"

    def _read(self, rank: int, on_step: Callable[[StepRow], None]) -> bool:
        """Opens the file anew each time: through a network's file system, what another host has appended since is seen
        for certain only then."""
        try:
            with self._files[rank].open("rb", buffering=0) as stream:
                stream.seek(self._offsets[rank])
                fresh = stream.read()
        except FileNotFoundError:
            return False
        self._offsets[rank] += len(fresh)
        if not fresh:
            return False
        *lines, self._cut_off[rank] = (self._cut_off[rank] + fresh).split(b"\n")
        for line in lines:
            row = StepRow.model_validate_json(line)
            waiting = self._pending.setdefault(row.step, [])
            waiting.append(row)
            if len(waiting) == self._ranks:
                self.steps += 1
                on_step(merge_ranks([[row] for row in self._pending.pop(row.step)])[0])
        return True


def ask_for_stacks(torchrun_pid: int) -> None:
    """Signals every rank below to write the stacks of its threads to `logs/rank-<r>.stacks.txt`."""
    import psutil

    for process in descendants(torchrun_pid):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if "TORCHELASTIC_RUN_ID" in process.environ():
                process.send_signal(signal.SIGUSR1)


def dump_stacks(attempt: Path, ranks: int) -> dict[int, str]:
    """Waits for the stacks that the ranks were asked for, and returns them by rank.

    A rank that does not answer, because it is stopped or stuck in native code, has an empty text.
    """
    deadline = time.monotonic() + _STACK_SECONDS
    while time.monotonic() < deadline:
        stacks = {rank: _text(stacks_file(attempt, rank)) for rank in range(ranks)}
        if all(stacks.values()):
            break
        time.sleep(0.1)
    time.sleep(0.1)  # the last text may still be growing
    return {rank: _text(stacks_file(attempt, rank)) for rank in range(ranks)}


def _text(file: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return file.read_text(errors="replace")
    return ""
