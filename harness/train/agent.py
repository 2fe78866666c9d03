"""torchrun on this host, and what is asked of it wherever it is. Never imports torch."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.machine import Fingerprint, elsewhere
from harness.processes import PARENT_VARIABLE, descendants, kill_all
from harness.train.host import HostWatch
from harness.train.journal import LOGS
from harness.train.memory import out_of_memory_kills
from harness.train.records import AgentEnd, RunSpec
from harness.train.watch import ask_for_stacks

SPEC_FILE = "spec.json"
STOP_SECONDS = 10.0
"""How long torchrun is given to stop its ranks before they are killed."""
_WORDS = 4000
"""Characters of a rank's standard error that are kept as its last words."""

_FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_FOREIGN_PREFIXES = ("TORCHELASTIC_", "GROUP_", "ROLE_", "PET_")
"""Variables by which an outer torchrun would be mistaken for ours, or ours would take an outer launcher's orders."""


class Agent(Protocol):
    """One host's torchrun and the ranks below it."""

    def ended(self) -> AgentEnd | None:
        """How it ended; None while it runs, and for ever when its host is lost."""

    def lost(self) -> str | None:
        """Why nothing can be known of it any more."""

    def ask_for_stacks(self) -> None:
        """Its ranks write where they stand (`journal.stacks_file`), as far as they can."""

    def ask_to_stop(self) -> None: ...

    def stop(self) -> None:
        """Returns when it and all below it have ended, or its host is lost."""


@dataclass(frozen=True)
class Meeting:
    """Where the torchruns of a run over several nodes meet, and this one's place among them."""

    nodes: int
    node_rank: int
    run_id: str
    address: str
    """Of node 0, as this host reaches it."""
    port: int
    own_address: str


class Hosts(Protocol):
    """All hosts of a run over several, this one first; `harness.cluster` gathers them."""

    names: list[str]
    addresses: list[str]
    fingerprints: list[Fingerprint]

    def start(self, spec: RunSpec, worker: str) -> tuple[Meeting, Sequence[Agent]]:
        """Orders torchrun on the other hosts, and says where this one's meets them."""

    def lost(self) -> str | None:
        """A sentence about the first host that is gone; None while all are there."""


class Torchrun:
    """Started by the constructor; gone, with every process below it, after `stop`."""

    def __init__(self, spec: RunSpec, worker: str, meeting: Meeting | None) -> None:
        attempt, node = Path(spec.folder), meeting.node_rank if meeting else 0
        logs = node_logs(attempt, node)
        logs.mkdir(parents=True, exist_ok=True)
        self._end: AgentEnd | None = None
        self._host = HostWatch()
        self._kills_before = out_of_memory_kills() or 0
        environment = rank_environment(os.environ) | elsewhere(spec.run.python)
        if meeting is not None and (interface := interface_of(meeting.own_address)) is not None:
            # gloo would take the interface of the host's own name, which on many systems is the loopback.
            environment.setdefault("GLOO_SOCKET_IFNAME", interface)
        with torchrun_log(attempt, node).open("wb") as log:
            self._process = subprocess.Popen(
                _command(spec, worker, logs, meeting),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is ours to handle
            )
        self._ending: int | None = None
        with contextlib.suppress(OSError):  # before Linux 5.3
            self._ending = os.pidfd_open(self._process.pid)

    @property
    def ending(self) -> int | None:
        """A file descriptor that can be read from once it has ended; None when that is known, or there is none."""
        return self._ending

    def ended(self) -> AgentEnd | None:
        code = self._process.poll()
        if code is not None and self._end is None:
            if self._ending is not None:
                os.close(self._ending)
                self._ending = None
            self._end = AgentEnd(
                exit_code=code,
                out_of_memory_kills=(out_of_memory_kills() or 0) - self._kills_before,
                conditions=self._host.conditions(),
            )
        return self._end

    def lost(self) -> str | None:
        return None

    def ask_for_stacks(self) -> None:
        ask_for_stacks(self._process.pid)

    def ask_to_stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """Gently first. Nothing happens when all are gone."""
        below = descendants(self._process.pid)
        self.ask_to_stop()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        kill_all(below)
        self._process.wait()

    def kill_ranks(self) -> None:
        """At once, for ranks that hang: they would only make `stop` wait."""
        kill_all(descendants(self._process.pid))


def _command(spec: RunSpec, worker: str, logs: Path, meeting: Meeting | None) -> list[str]:
    python, ranks = spec.run.python or sys.executable, spec.run.cell.ranks
    if meeting is None:
        places = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
    else:
        places = [
            f"--nnodes={meeting.nodes}",
            f"--node-rank={meeting.node_rank}",
            "--rdzv-backend=static",
            f"--rdzv-endpoint={meeting.address}:{meeting.port}",
            f"--rdzv-id={meeting.run_id}",
            f"--local-addr={meeting.own_address}",
            f"--nproc-per-node={ranks // meeting.nodes}",
        ]
    places += [f"--log-dir={logs}", "--redirects=3"]
    return [python, "-m", "harness.train.torchrun", *places, "-m", worker, str(Path(spec.folder) / SPEC_FILE)]


def rank_environment(parent: Mapping[str, str]) -> dict[str, str]:
    """The environment of the ranks: the caller's, without an outer torchrun's variables, with ours.

    One thread per rank unless the caller says otherwise, as torchrun itself would set it.
    """
    kept = {
        name: value for name, value in parent.items() if name not in _FOREIGN and not name.startswith(_FOREIGN_PREFIXES)
    }
    ours = {PARENT_VARIABLE: str(os.getpid())}
    return {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **kept, **ours}


def interface_of(address: str) -> str | None:
    """Name of the network interface that has this address."""
    import psutil

    for name, found in psutil.net_if_addrs().items():
        if any(each.address == address for each in found):
            return str(name)
    return None


def node_logs(attempt: Path, node: int) -> Path:
    return attempt / LOGS / f"node-{node}" if node else attempt / LOGS


def torchrun_log(attempt: Path, node: int) -> Path:
    return node_logs(attempt, node) / "torchrun.log"


def last_words(attempt: Path, node: int, local_rank: int) -> str:
    """The end of a rank's standard error."""
    logs = sorted(node_logs(attempt, node).glob(f"*/attempt_0/{local_rank}/stderr.log"))
    return logs[-1].read_text(errors="replace")[-_WORDS:].strip() if logs else ""
