"""Node 0's end: the other hosts of a run, gathered once and then given orders."""

from __future__ import annotations

import secrets
import socket
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from harness.cluster.line import DumpStacks, Ended, Farewell, Greeting, Hello, Line, Start, Stop
from harness.cluster.nodes import Nodes
from harness.errors import BadInput, ExitCode, MachineFault
from harness.machine import Fingerprint
from harness.store import write_atomically
from harness.train.agent import SPEC_FILE, STOP_SECONDS, Meeting
from harness.train.records import AgentEnd, RunSpec

GATHER_SECONDS = 600.0
"""How long the first host waits for the others, and they for it."""
_HELLO_SECONDS = 20.0


class RemoteHost:
    """A host that has joined."""

    def __init__(self, line: Line, hello: Hello) -> None:
        self.line, self.fingerprint = line, hello.fingerprint
        self.ends: dict[str, AgentEnd] = {}
        """How torchrun ended there, by run."""
        self._left: str | None = None

    def lost(self) -> str | None:
        self.hear()
        return self._left or self.line.lost()

    def hear(self) -> None:
        while (message := self.line.receive()) is not None:
            if isinstance(message, Ended):
                self.ends[message.run_id] = message.end
            elif isinstance(message, Farewell):
                self._left = message.reason


class RemoteTorchrun:
    """An `Agent`: another host's torchrun of one run."""

    def __init__(self, host: RemoteHost, order: Start) -> None:
        self._host, self._run_id = host, order.run_id
        self._asked = False
        host.line.send(order)

    def ended(self) -> AgentEnd | None:
        self._host.hear()
        return self._host.ends.get(self._run_id)

    def lost(self) -> str | None:
        return None if self.ended() else self._host.lost()

    def ask_for_stacks(self) -> None:
        self._host.line.send(DumpStacks())

    def ask_to_stop(self) -> None:
        if not self._asked and self.ended() is None:
            self._asked = True
            self._host.line.send(Stop())

    def stop(self) -> None:
        self.ask_to_stop()
        deadline = time.monotonic() + 2 * STOP_SECONDS
        while self.ended() is None and self.lost() is None and time.monotonic() < deadline:
            time.sleep(0.05)


class GatheredHosts:
    """A `harness.train.agent.Hosts`: all hosts of a run, this one first.

    Attributes:
        names, addresses, fingerprints: by node. Hosts that share a name are told apart by their addresses.
    """

    def __init__(self, own: Fingerprint, others: Sequence[RemoteHost]) -> None:
        self._others = others
        self.addresses = [others[0].line.own_address, *(host.line.peer_address for host in others)]
        self.fingerprints = [own, *(host.fingerprint for host in others)]
        plain = [fingerprint.hostname for fingerprint in self.fingerprints]
        alike = len(set(plain)) < len(plain)
        self.names = [
            f"{name} ({address})" if alike else name for name, address in zip(plain, self.addresses, strict=True)
        ]

    def start(self, spec: RunSpec, worker: str) -> tuple[Meeting, list[RemoteTorchrun]]:
        """Orders torchrun on the other hosts, and says where this one's meets them."""
        order = Start(
            spec_file=str(Path(spec.folder) / SPEC_FILE),
            worker=worker,
            nodes=len(self.names),
            run_id=uuid.uuid4().hex[:12],
            port=_free_port(),
        )
        own = self.addresses[0]
        meeting = Meeting(order.nodes, 0, order.run_id, address=own, port=order.port, own_address=own)
        return meeting, [RemoteTorchrun(host, order) for host in self._others]

    def lost(self) -> str | None:
        """A sentence about the first host that is gone; None while all are there."""
        for name, host in zip(self.names[1:], self._others, strict=True):
            if (why := host.lost()) is not None:
                return f"host {name} is lost: {why}"
        return None

    def dismiss(self, exit_code: int, reason: str = "all is done") -> None:
        """The others end, with this exit code."""
        for host in self._others:
            host.line.send(Farewell(reason=reason, exit_code=exit_code))
            host.line.close()


def gather(nodes: Nodes, own: Fingerprint, results: Path, patience_seconds: float = GATHER_SECONDS) -> GatheredHosts:
    """Waits for the other hosts.

    Args:
        results: every host must see this folder under this path.

    Raises:
        BadInput: the port is taken.
        MachineFault: a host did not come, does not see the results, or differs in hardware or software.
    """
    shared = results.resolve() / f".gathering-{uuid.uuid4().hex[:12]}"
    token = secrets.token_hex(16)
    write_atomically(shared, token)
    shared.chmod(0o600)
    joined: dict[int, RemoteHost] = {}
    try:
        with _listening(nodes.port) as server:
            deadline = time.monotonic() + patience_seconds
            while len(joined) < nodes.count - 1:
                try:
                    server.settimeout(max(0.1, deadline - time.monotonic()))
                    line = Line(server.accept()[0])
                except TimeoutError:
                    missing = ", ".join(str(rank) for rank in range(1, nodes.count) if rank not in joined)
                    raise MachineFault(
                        f"after {patience_seconds:.0f} s node {missing} of {nodes.count} has not come to port "
                        f"{nodes.port}; run the same command there, with its own --node-rank"
                    ) from None
                _welcome(line, Greeting(shared_file=str(shared)), token, own, joined)
    except BaseException as error:
        for host in joined.values():
            host.line.send(Farewell(reason=str(error) or "interrupted", exit_code=ExitCode.USAGE))
            host.line.close()
        raise
    finally:
        shared.unlink(missing_ok=True)
    return GatheredHosts(own, [joined[rank] for rank in sorted(joined)])


def _welcome(line: Line, greeting: Greeting, token: str, own: Fingerprint, joined: dict[int, RemoteHost]) -> None:
    """Takes a host in. Whoever does not speak our language is sent away; a host that cannot take part ends it all."""
    line.send(greeting)
    hello = line.receive(_HELLO_SECONDS)
    if not isinstance(hello, Hello):
        line.close()
        return
    try:
        _refuse_unfit(hello, greeting, token, own, joined)
    except MachineFault as error:
        line.send(Farewell(reason=str(error), exit_code=int(error.exit_code)))
        line.close()
        raise
    joined[hello.node_rank] = RemoteHost(line, hello)


def _refuse_unfit(
    hello: Hello, greeting: Greeting, token: str, own: Fingerprint, joined: dict[int, RemoteHost]
) -> None:
    name = hello.fingerprint.hostname
    if hello.token != token:
        raise MachineFault(
            f"host {name} does not see {Path(greeting.shared_file).parent} of the first host: --results must be on a "
            "file system that all hosts share, under the same path"
        )
    if hello.node_rank in joined or hello.node_rank == 0:
        raise MachineFault(f"host {name} comes as node {hello.node_rank}, which another host is already")
    theirs, ours = hello.fingerprint, own
    unlike = [
        f"{what} {of_theirs} there, {of_ours} here"
        for what, of_theirs, of_ours in (
            ("hardware", theirs.hardware_key, ours.hardware_key),
            ("Python", theirs.python, ours.python),
            *((each, theirs.versions.get(each), ours.versions.get(each)) for each in theirs.versions | ours.versions),
        )
        if of_theirs != of_ours
    ]
    if unlike:
        raise MachineFault(f"host {name} is unlike the first: {'; '.join(unlike)}. A run needs hosts of one kind")


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server(("", port), reuse_port=False)
    except OSError as error:
        raise BadInput("--rdzv-endpoint", None, port, f"a free port of this host ({error.strerror})") from None


def _free_port() -> int:
    """For torchrun's store. Another process may take it before torchrun does; the run then ends as CRASHED."""
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])
