"""One job, as it is carried to a node and done there."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.cluster.command import run_over
from harness.cluster.nodes import find_nodes
from harness.commands.output import Output
from harness.display import Display
from harness.errors import ExitCode, HarnessError, MachineFault
from harness.machine import fingerprint, over_nodes
from harness.reading import read_plan
from harness.records import Value
from harness.run import Workplace, do_remaining_work
from harness.store import ResultFolder
from harness.train.agent import Hosts

if TYPE_CHECKING:
    import submitit


class JobEnd(Value):
    """What a job answers when it has done what it could."""

    host: str
    fault: str | None
    """A foreseen problem, for the person at the terminal."""


@dataclass(frozen=True)
class Job:
    """Some work of a result, by name. It must be importable on the node, and its folders be there."""

    result: str
    results: str
    baselines: str
    command: str
    names: tuple[str, ...]
    profile: bool

    def __call__(self) -> JobEnd:
        """On several nodes every one of them calls this; the first leads."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # submitit would have it ignored
        output = Output(Path(self.results), Path(self.baselines), json=False, quiet=False)
        fault = None
        try:
            nodes = find_nodes(None, None, None, os.environ)
            if nodes.count > 1:
                run_over(nodes, output, lambda hosts: self._work(output, hosts))
            else:
                self._work(output, None)
        except HarnessError as error:
            fault = str(error)
        return JobEnd(host=socket.gethostname(), fault=fault)

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Called by submitit when the job's time is up or it must make room: the same work is queued again."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)

    def _work(self, output: Output, hosts: Hosts | None) -> ExitCode:
        result = ResultFolder(Path(self.result))
        plan, machine = read_plan(result), over_nodes(fingerprint(), len(hosts.names) if hosts else 1)
        if machine.hardware_key != plan.hardware_key:
            raise MachineFault(
                f"this node is {machine.hardware_key}, but the plan is for {plan.hardware_key}: name a partition or a "
                "constraint with nodes of one kind in [slurm]"
            )
        place = Workplace(output.store, output.baseline_folder, machine, self.command, self.profile, hosts)
        with Display(Console(), plan.workers) as display:
            do_remaining_work(plan, result, place, display, only=frozenset(self.names))
        return ExitCode.OK
