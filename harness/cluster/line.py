"""The line between two hosts: typed messages over one TCP connection, and beats that tell that the other end lives.

As with torchrun's own store, whoever can reach the port is trusted.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import threading
import time
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from harness.machine import Fingerprint
from harness.records import Value
from harness.train.records import AgentEnd

BEAT_SECONDS = 1.0
LOST_SECONDS = 15.0
"""An end that has been silent for so long is taken for lost. A host that pauses for less, as busy ones do, is not."""


class Greeting(Value):
    """First word of node 0: a file that every host must see, with what is in it known to the readers alone."""

    kind: Literal["greeting"] = "greeting"
    shared_file: str


class Hello(Value):
    """Answer to the greeting."""

    kind: Literal["hello"] = "hello"
    node_rank: int
    fingerprint: Fingerprint
    token: str | None
    """Content of the shared file; None where there is no such file."""


class Start(Value):
    """Order to start torchrun for one run."""

    kind: Literal["start"] = "start"
    spec_file: str
    worker: str
    nodes: int
    run_id: str
    port: int
    """Of torchrun's store, on node 0."""


class DumpStacks(Value):
    kind: Literal["dump_stacks"] = "dump_stacks"


class Stop(Value):
    """Order to end the run under way. `Ended` follows, as it does when the run ends by itself."""

    kind: Literal["stop"] = "stop"


class Ended(Value):
    """torchrun has ended here, and every rank with it."""

    kind: Literal["ended"] = "ended"
    run_id: str
    end: AgentEnd


class Farewell(Value):
    """Last word of either end, and why."""

    kind: Literal["farewell"] = "farewell"
    reason: str
    exit_code: int


Message = Greeting | Hello | Start | DumpStacks | Stop | Ended | Farewell
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


class Line:
    """One end. A thread of its own sends the beats and hears the other's, whatever the owner is busy with."""

    def __init__(self, connection: socket.socket, lost_seconds: float = LOST_SECONDS) -> None:
        self.own_address: str = connection.getsockname()[0]
        self.peer_address: str = connection.getpeername()[0]
        self._connection, self._lost_seconds = connection, lost_seconds
        self._connection.setblocking(True)
        self._received: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._heard = time.monotonic()
        self._broken: str | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="line", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        """A message that cannot be sent any more is dropped: `lost` tells."""
        self._write(message.model_dump_json().encode() + b"\n")

    def receive(self, seconds: float = 0.0) -> Message | None:
        """The next message, if one comes within so long."""
        with contextlib.suppress(queue.Empty):
            return self._received.get(timeout=seconds) if seconds > 0 else self._received.get_nowait()
        return None

    def lost(self) -> str | None:
        """Why nothing can be expected of the other end any more; None while it lives."""
        if not self._received.empty():
            return None  # a farewell may be among them
        if self._broken is not None:
            return self._broken
        silent = time.monotonic() - self._heard
        return f"nothing was heard of it for {silent:.0f} s" if silent > self._lost_seconds else None

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _keep(self) -> None:
        cut_off, beaten = b"", 0.0
        while not self._closed.is_set() and self._broken is None:
            if time.monotonic() - beaten >= BEAT_SECONDS:
                beaten = time.monotonic()
                self._write(b"\n")
            try:
                if not select.select([self._connection], [], [], BEAT_SECONDS / 2)[0]:
                    continue
                fresh = self._connection.recv(65536)
            except ConnectionResetError:
                fresh = b""
            except OSError as error:
                self._broken = f"the connection broke ({error.strerror or error})"
                return
            if not fresh:
                self._broken = "it closed the connection"
                return
            self._heard = time.monotonic()
            *lines, cut_off = (cut_off + fresh).split(b"\n")
            try:
                for line in filter(None, lines):
                    self._received.put(_MESSAGE.validate_json(line))
            except ValidationError:
                self._broken = "it does not speak as this harness does"

    def _write(self, line: bytes) -> None:
        with self._sending, contextlib.suppress(OSError):
            # A cut-off end reads nothing: once the kernel's buffer is full, a beat more or less is no matter.
            if select.select([], [self._connection], [], 0)[1]:
                self._connection.sendall(line)
