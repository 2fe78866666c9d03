"""Which node of how many this host is: from the options, or from what a cluster's launcher left in the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import BadInput

_LOWEST_PORT, _PORTS = 20000, 10000
"""Where Slurm jobs meet: below what Linux hands out by itself (32768 and up), a port of its own for each job."""


@dataclass(frozen=True)
class Nodes:
    """One host's place among the hosts of a run. Node 0 leads: it plans, writes the records and orders the others."""

    count: int
    rank: int
    host: str
    """Of node 0, as the others reach it."""
    port: int

    @property
    def leads(self) -> bool:
        return self.rank == 0


ALONE = Nodes(1, 0, "127.0.0.1", 0)


def find_nodes(nnodes: int | None, node_rank: int | None, endpoint: str | None, environ: Mapping[str, str]) -> Nodes:
    """What was typed, and where that is silent what the environment says: torchrun's own variables (`PET_NNODES`,
    `PET_NODE_RANK`, `PET_RDZV_ENDPOINT` or `PET_MASTER_ADDR` and `PET_MASTER_PORT`, as Kubeflow sets them), or those
    of a Slurm step with one task per node. One node where nothing says otherwise.

    Raises:
        BadInput: several nodes without an endpoint or a rank, or values that do not fit together.
    """
    count, rank, meeting = _slurm(environ) or _torchrun(environ)
    count = nnodes if nnodes is not None else count
    rank = node_rank if node_rank is not None else rank
    meeting = endpoint if endpoint is not None else meeting
    if count < 1:
        raise BadInput("--nnodes", None, count, "at least 1")
    if count == 1:
        return ALONE
    if meeting is None:
        raise BadInput("--rdzv-endpoint", None, None, f"HOST:PORT of the first of {count} hosts, the same on all")
    if rank is None:
        raise BadInput("--node-rank", None, None, f"0 on the first host, 1 to {count - 1} on the others")
    if not 0 <= rank < count:
        raise BadInput("--node-rank", None, rank, f"0 to {count - 1}, since there are {count} nodes")
    host, colon, port = meeting.rpartition(":")
    if not (colon and host and port.isdigit() and 0 < int(port) < 65536):
        raise BadInput("--rdzv-endpoint", None, meeting, "HOST:PORT, such as node1:29500")
    return Nodes(count, rank, host, int(port))


def _torchrun(environ: Mapping[str, str]) -> tuple[int, int | None, str | None]:
    address, port = environ.get("PET_MASTER_ADDR"), environ.get("PET_MASTER_PORT", "29500")
    endpoint = environ.get("PET_RDZV_ENDPOINT") or (f"{address}:{port}" if address else None)
    rank = environ.get("PET_NODE_RANK")
    return _number(environ, "PET_NNODES") or 1, None if rank is None else _number(environ, "PET_NODE_RANK"), endpoint


def _slurm(environ: Mapping[str, str]) -> tuple[int, int | None, str | None] | None:
    """None outside of a step that `srun` has spread over several nodes: an allocation by itself starts nothing there.

    The variables are `srun`'s, by its manual of Slurm 22.05.
    """
    count = _number(environ, "SLURM_STEP_NUM_NODES")
    if count is None or count == 1:
        return None
    if _number(environ, "SLURM_STEP_NUM_TASKS") != count:
        tasks = environ.get("SLURM_STEP_NUM_TASKS")
        expected = f"{count}, one task per node: srun --ntasks-per-node=1 (the harness starts the ranks itself)"
        raise BadInput("SLURM_STEP_NUM_TASKS", None, tasks, expected)
    port = _LOWEST_PORT + (_number(environ, "SLURM_JOB_ID") or 0) % _PORTS
    return count, _number(environ, "SLURM_NODEID"), f"{first_host(environ.get('SLURM_STEP_NODELIST', ''))}:{port}"


def first_host(node_list: str) -> str:
    """Slurm's `gpu[03-05,9]-ib,login` begins with `gpu03-ib`."""
    name = re.match(r"([^\[,]*)(?:\[(\w+)[^\]]*\])?([^\[,]*)", node_list)
    return "".join(part or "" for part in name.groups()) if name else ""


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name)
    if text is None:
        return None
    if not text.isdigit():
        raise BadInput(name, None, text, "a whole number (elastic ranges such as 1:4 are not supported)")
    return int(text)
