"""Any other node's end: joins the first host, and starts and stops torchrun as it says."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

from harness.cluster.leader import GATHER_SECONDS
from harness.cluster.line import DumpStacks, Ended, Farewell, Greeting, Hello, Line, Start, Stop
from harness.cluster.nodes import Nodes
from harness.errors import ExitCode, MachineFault
from harness.machine import Fingerprint
from harness.store import read_record
from harness.train.agent import Meeting, Torchrun
from harness.train.records import RunSpec

_POLL_SECONDS = 0.1


def follow(
    nodes: Nodes, own: Fingerprint, say: Callable[[str], None], patience_seconds: float = GATHER_SECONDS
) -> ExitCode:
    """Does what the first host says until it says farewell; returns the exit code it ended with.

    Raises:
        MachineFault: the first host did not come, or was lost. The ranks here have been stopped.
    """
    line = _connected(nodes, patience_seconds)
    reason = "interrupted"
    follower = Follower(line, nodes, say)
    try:
        greeting = line.receive(patience_seconds)
        if not isinstance(greeting, Greeting):
            raise MachineFault(f"{nodes.host}:{nodes.port} does not answer as a harness does")
        line.send(Hello(node_rank=nodes.rank, fingerprint=own, token=_text(Path(greeting.shared_file))))
        return follower.serve()
    except Exception as error:
        reason = str(error)
        raise
    finally:
        follower.stop()
        line.send(Farewell(reason=reason, exit_code=0))
        line.close()


class Follower:
    def __init__(self, line: Line, nodes: Nodes, say: Callable[[str], None]) -> None:
        self._line, self._nodes, self._say = line, nodes, say
        self._torchrun: Torchrun | None = None
        self._run_id = ""

    def serve(self) -> ExitCode:
        """Raises MachineFault when the first host is lost, or sends this one away."""
        while True:
            match self._line.receive(_POLL_SECONDS):
                case Start() as order:
                    self._start(order)
                case DumpStacks() if self._torchrun is not None:
                    self._torchrun.ask_for_stacks()
                case Stop():
                    self.stop()
                case Farewell(reason=reason, exit_code=exit_code):
                    if exit_code == ExitCode.USAGE:
                        raise MachineFault(reason)
                    return ExitCode(exit_code)
            self._report_end()
            if (why := self._line.lost()) is not None:
                self.stop()
                raise MachineFault(f"the first host, {self._nodes.host}, is lost: {why}; the ranks here were stopped")

    def stop(self) -> None:
        if self._torchrun is not None:
            self._torchrun.stop()
            self._report_end()

    def _start(self, order: Start) -> None:
        spec = read_record(Path(order.spec_file), RunSpec)
        self._run_id = order.run_id
        self._torchrun = Torchrun(
            spec,
            order.worker,
            Meeting(
                order.nodes,
                self._nodes.rank,
                order.run_id,
                address=self._line.peer_address,
                port=order.port,
                own_address=self._line.own_address,
            ),
        )
        self._say(f"{spec.run.key}, attempt {spec.attempt}: started")

    def _report_end(self) -> None:
        if self._torchrun is not None and (end := self._torchrun.ended()) is not None:
            self._line.send(Ended(run_id=self._run_id, end=end))
            self._say("ended" if end.exit_code == 0 else f"ended: torchrun's exit code is {end.exit_code}")
            self._torchrun = None


def _connected(nodes: Nodes, patience_seconds: float) -> Line:
    deadline, why = time.monotonic() + patience_seconds, ""
    while time.monotonic() < deadline:
        try:
            return Line(socket.create_connection((nodes.host, nodes.port), timeout=5.0))
        except OSError as error:
            why = error.strerror or str(error)
            time.sleep(0.5)
    raise MachineFault(f"{nodes.host}:{nodes.port} cannot be reached ({why}): is the first host running its harness?")


def _text(file: Path) -> str | None:
    with contextlib.suppress(OSError):
        return file.read_text()
    return None
