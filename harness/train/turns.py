"""Turns: process groups that are alive together and run one at a time, a few steps each. No torch here.

The launcher holds a baton per group. A rank that is due to make the first step of a turn asks for it and sleeps in
`recv` until it comes, so a waiting group costs no processor time, no collective of its own waits, and nothing is
asked of gloo or NCCL.
"""

from __future__ import annotations

import contextlib
import selectors
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.plan import PlannedRun

_ASK, _GO = b"?", b"!"


def turn_order(groups: int) -> Iterator[int]:
    """Whose turn it is, without end: there and back (0 1 2, 2 1 0, 0 1 2 …).

    Over two rounds every group stands in the same mean place, so a steady drift of the machine weighs on all alike.
    """
    while True:
        yield from range(groups)
        yield from reversed(range(groups))


def turn_of(step: int, run: PlannedRun) -> int:
    """The turn that a process's step belongs to, counted from its own first step: the warm-up is turn 0."""
    if step < run.warmup_steps or run.turn_steps is None:
        return 0
    return 1 + (step - run.warmup_steps) // run.turn_steps


class Baton:
    """A rank's end."""

    def __init__(self, address: str) -> None:
        """Raises OSError when no launcher listens there."""
        self._launcher = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._launcher.connect(address)

    def take(self) -> None:
        """Ends the turn before, if there was one, and returns when the next begins.

        Raises ConnectionError when the launcher is gone.
        """
        self._launcher.sendall(_ASK)
        if not self._launcher.recv(1):
            raise ConnectionError("the launcher that gives the turns is gone")


class Turns:
    """The launcher's end: waits until every group is ready for its first step, then lets one run at a time.

    A group's turn ends when all its ranks ask for the next one, or when it is reported to have left.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        """
        Args:
            ranks: how many ranks each group has.
        """
        self._ranks = list(ranks)
        self._asking: list[list[socket.socket]] = [[] for _ in ranks]
        self._here = set(range(len(ranks)))
        self._order = turn_order(len(ranks))
        self._holder: int | None = None
        self._begun = False
        # A socket's path may hold about a hundred characters only, so it cannot lie in the attempt's folder.
        self._folder = Path(tempfile.mkdtemp(prefix="harness-turns-"))
        self._selector = selectors.EpollSelector()
        for group in self._here:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(self.address(group))
            listener.listen(ranks[group])
            self._selector.register(listener, selectors.EVENT_READ, (group, True))

    def address(self, group: int) -> str:
        """What the group's ranks give to `Baton`."""
        return str(self._folder / str(group))

    def waits(self, group: int) -> bool:
        """Whether the group stands still because it is not its turn."""
        return group in self._here and group != self._holder and self._ready(group)

    def fileno(self) -> int:
        """To wait on: there is something to hear."""
        return self._selector.fileno()

    def serve(self, seconds: float) -> None:
        """Hears the ranks for at most so long, and hands on the baton when a turn ends."""
        for key, _ in self._selector.select(seconds):
            group, is_listener = key.data
            ranks_end = key.fileobj
            assert isinstance(ranks_end, socket.socket)
            if is_listener:
                self._selector.register(ranks_end.accept()[0], selectors.EVENT_READ, (group, False))
            elif self._has_asked(ranks_end):
                self._asking[group].append(ranks_end)
        self._hand_on()

    def leave(self, group: int) -> None:
        """The group has ended, in its turn or out of it."""
        self._here.discard(group)
        if self._holder == group:
            self._holder = None
        self._hand_on()

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _has_asked(self, rank: socket.socket) -> bool:
        with contextlib.suppress(ConnectionError):
            if rank.recv(1):
                return True
        self._selector.unregister(rank)
        rank.close()
        return False

    def _ready(self, group: int) -> bool:
        return len(self._asking[group]) == self._ranks[group]

    def _hand_on(self) -> None:
        if self._holder is not None and not self._ready(self._holder):
            return
        self._begun = self._begun or all(self._ready(group) for group in self._here)
        if not self._begun or not self._here:
            return
        self._holder = next(group for group in self._order if group in self._here)
        ranks, self._asking[self._holder] = self._asking[self._holder], []
        for rank in ranks:
            with contextlib.suppress(OSError):  # a rank that has just died: torchrun will tell
                rank.sendall(_GO)
