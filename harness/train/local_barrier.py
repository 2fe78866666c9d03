"""A barrier for the ranks of one host: a star of local sockets around rank 0. No torch here.

Every timed step begins and ends with all ranks standing still together. A collective for that wakes the threads of
gloo on every rank, about a millisecond of processor time each (docs/measurement.md), which is 1 % of a step of 100 ms;
eight bytes through a socket cost a tenth of it. And it is apart from the collectives that belong to the backend.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_NUMBER = struct.Struct("d")
_RETRY_SECONDS = 0.02


class LocalBarrier:
    """One rank's place in it."""

    def __init__(self, rank: int, ranks: int, share: Callable[[str], str], timeout_seconds: float) -> None:
        """Returns when all ranks are there.

        Args:
            ranks: all on this host.
            share: called by every rank, returns what rank 0 gave it.
            timeout_seconds: how long a rank waits for the others, here and every time.

        Raises:
            TimeoutError, ConnectionError: as `mean`.
        """
        self._centre: socket.socket | None = None
        """To rank 0; None on rank 0 itself."""
        self._others: dict[int, socket.socket] = {}
        """On rank 0: to each of the others."""
        # A socket's path may hold about a hundred characters only, so it cannot lie in the attempt's folder.
        folder = tempfile.mkdtemp(prefix="harness-barrier-") if rank == 0 else ""
        place = str(Path(share(folder)) / "0")
        try:
            if rank == 0:
                self._others = _opened(place, ranks, timeout_seconds)
            else:
                self._centre = _joined(place, rank, timeout_seconds)
        finally:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)

    def mean(self, value: float) -> float:
        """Mean over ranks, the same on all of them, once all have come.

        Raises:
            ConnectionError: a rank is gone.
            TimeoutError: a rank did not come.
        """
        if self._centre is not None:
            _send(self._centre, 0, value)
            return _receive(self._centre, "rank 0")
        given = [value, *(_receive(other, f"rank {rank}") for rank, other in self._others.items())]
        found = sum(given) / len(given)
        for rank, other in self._others.items():
            _send(other, rank, found)
        return found

    def close(self) -> None:
        for other in [*self._others.values(), *([self._centre] if self._centre else [])]:
            other.close()


def _opened(place: str, ranks: int, timeout_seconds: float) -> dict[int, socket.socket]:
    """Rank 0's: the connections of all others, by rank."""
    found = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(place)
        listener.listen(ranks)
        listener.settimeout(timeout_seconds)
        for _ in range(ranks - 1):
            other = listener.accept()[0]
            other.settimeout(timeout_seconds)
            found[int(_receive(other, "a rank"))] = other
    return dict(sorted(found.items()))


def _joined(place: str, rank: int, timeout_seconds: float) -> socket.socket:
    """The others': a connection to rank 0, which may not be listening yet."""
    deadline = time.monotonic() + timeout_seconds
    centre = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    centre.settimeout(timeout_seconds)
    while True:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            centre.connect(place)
            _send(centre, 0, float(rank))
            return centre
        if time.monotonic() > deadline:
            raise TimeoutError("Timed out waiting for rank 0 to open the barrier")
        time.sleep(_RETRY_SECONDS)


def _send(peer: socket.socket, rank: int, value: float) -> None:
    try:
        peer.sendall(_NUMBER.pack(value))
    except ConnectionError as gone:
        raise ConnectionError(f"Connection closed by peer: rank {rank} is gone") from gone


def _receive(peer: socket.socket, who: str) -> float:
    try:
        data = peer.recv(_NUMBER.size, socket.MSG_WAITALL)
    except TimeoutError as late:
        raise TimeoutError(f"Timed out waiting for {who}") from late
    except ConnectionError:
        data = b""
    if len(data) < _NUMBER.size:
        raise ConnectionError(f"Connection closed by peer: {who} is gone")
    return float(_NUMBER.unpack(data)[0])
