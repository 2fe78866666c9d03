"""The error tree and the exit codes: every way a command can end, in one place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """What a command's exit status means; `worst` says which one wins when several apply."""

    OK = 0
    BUG = 1
    USAGE = 2
    REGRESSED = 10
    NOT_SHOWN = 11
    FAILED = 12
    INTERRUPTED = 130


_SEVERITY = (ExitCode.OK, ExitCode.NOT_SHOWN, ExitCode.FAILED, ExitCode.REGRESSED)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The code a finished comparison ends with: a regression wins over a failure, a failure over doubt.

    No codes at all is NOT_SHOWN: where nothing was measured, nothing was shown.
    """
    return max(codes, key=_SEVERITY.index, default=ExitCode.NOT_SHOWN)


class HarnessError(Exception):
    """A problem we foresaw. Its message is written for the person at the terminal."""

    exit_code = ExitCode.USAGE


class BadInput(HarnessError):
    """A file or an argument holds something we cannot use.

    Args:
        source: the file or the option the value came from.
        key: dotted key inside it, or None when the whole file is at fault.
        value: what was found.
        expected: what would have been right, in words.
        choices: the valid names, when there is a list of them; the nearest one is suggested.
    """

    def __init__(
        self,
        source: Path | str,
        key: str | None,
        value: object,
        expected: str,
        choices: Iterable[str] = (),
    ) -> None:
        self.source, self.key, self.value, self.expected = str(source), key, value, expected
        self.choices = sorted(choices)
        where = self.source if key is None else f"{self.source}: {key}"
        found = "" if value is None else f" = {value!r}"
        text = f"{where}{found}: expected {expected}"
        if self.choices:
            text += f" ({', '.join(self.choices)})"
        nearest = difflib.get_close_matches(str(value), self.choices, n=1, cutoff=0.4)
        if nearest:
            text += f'; did you mean "{nearest[0]}"?'
        super().__init__(text)


class DamagedRecord(HarnessError):
    """A record on disk cannot be read: cut off, edited by hand, or written by a newer harness."""


class MachineFault(HarnessError):
    """The machine lacks something the command needs; the message says how to get it."""


class DiskFull(MachineFault):
    """A record could not be written for want of space. Nothing half-written is left behind."""
