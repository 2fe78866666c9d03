"""`harness plan`, `harness run`, `harness train`: commands about a whole suite."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from harness.cluster.nodes import ALONE, Nodes
from harness.commands.output import Output
from harness.display import Display, spoken
from harness.errors import BadInput, ExitCode
from harness.estimate import plan_disk_bytes, plan_seconds
from harness.machine import fingerprint, over_nodes
from harness.plan import Plan, RunKind
from harness.planning import make_plan
from harness.selection import selected
from harness.store import Store
from harness.suite import Suite
from harness.suite_file import load_suite, suite_from

if TYPE_CHECKING:
    from harness.run import Doing
    from harness.train.agent import Hosts

MIB = 2**20


@dataclass(frozen=True)
class Request:
    """A suite and how the command line narrows or changes it."""

    suite: Path
    models: str | None
    backends: str | None
    sets: list[str]

    def load(self) -> Suite:
        return selected(load_suite(self.suite, self.sets), self.models, self.backends)


def plan_of(name: str, suite: Suite, nodes: int = 1) -> Plan:
    """Resolved for this machine, or so many like it."""
    machine = over_nodes(fingerprint(), nodes)
    return make_plan(name, suite, machine.hardware_key, bool(machine.gpus), nodes)


def show_plan(request: Request, nodes: int, results: Path, as_json: bool) -> None:
    from harness.run import progress_of, unfinished_result

    plan = plan_of(request.suite.stem, request.load(), nodes)
    store = Store(results)
    progress = progress_of(plan, unfinished_result(plan, store), store)
    seconds, disk = plan_seconds(plan, progress), plan_disk_bytes(plan)
    if as_json:
        shown = {"plan": plan.model_dump(mode="json"), "seconds_left": round(seconds), "disk_bytes": disk}
        print(json.dumps(shown, indent=1))
        return
    console = Console()
    table = Table(title=f"{plan.suite}: {len(plan.runs)} training runs in this order", title_justify="left")
    for column in ("", "cell", "kind", "repeat", "steps", "global batch", "optimizer"):
        table.add_column(column)
    for number, run in enumerate(plan.runs, 1):
        optimizer = f"{run.cell.optimizer.name} {run.cell.optimizer.lr:g} {run.cell.optimizer.schedule}"
        batch = f"{run.cell.samples_per_step}"
        table.add_row(str(number), run.cell.label, str(run.kind), str(run.repeat), str(run.steps), batch, optimizer)
    console.print(table)
    in_turns = next((run for run in plan.runs if run.block), None)
    if in_turns is not None:
        console.print(f"timing runs of one model and repeat take turns, {in_turns.turn_steps} steps each")
    if plan.order_note:
        console.print(plan.order_note)
    for cell in plan.unsupported:
        console.print(f"[yellow]unsupported[/yellow] {cell.label}: {cell.reason}")
    if plan.needs_demonstrations:
        state = "made already" if progress.demonstrations_ready else "to be made first"
        console.print(f"demonstrations: {len(plan.data.tasks)} tasks × {plan.data.episodes} episodes, {state}")
    if plan.arms:
        arms = ", ".join(arm.name for arm in plan.arms)
        console.print(f"evaluation: {len(plan.episodes)} episodes for each of {arms}")
    console.print(f"about {spoken(seconds)} left on a 2-core machine, {disk / MIB:.0f} MiB of disk")


def run_suite_file(
    request: Request, output: Output, profile: bool = False, plant: str | None = None, nodes: Nodes = ALONE
) -> ExitCode:
    """
    Args:
        plant: `CELL=KIND:AMOUNT`, a fault for every timing run of one cell.
        nodes: this host's place. Any but the first does as the first says; the suite is the first one's affair.
    """
    if nodes.count > 1:
        from harness.cluster.command import run_over

        return run_over(nodes, output, lambda hosts: _run_here(request, output, profile, plant, hosts))
    return _run_here(request, output, profile, plant, None)


def _run_here(request: Request, output: Output, profile: bool, plant: str | None, hosts: Hosts | None) -> ExitCode:
    plan = _planted(plan_of(request.suite.stem, request.load(), len(hosts.names) if hosts else 1), plant)
    return run_plan(plan, request.suite.read_text(), output, profile, hosts)


def _planted(plan: Plan, plant: str | None) -> Plan:
    if plant is None:
        return plan
    from harness.drill import parse_fault, with_fault

    return with_fault(plan, *parse_fault(plan, plant))


def run_in_jobs(request: Request, output: Output, profile: bool, plant: str | None, on: str) -> ExitCode:
    """The suite with every piece of its work a job; the plan is for the nodes that the jobs get, not for this machine.

    Args:
        on: one of `harness.cluster.jobs.CLUSTERS`.
    """
    from harness.cluster.jobs import Queue, check_cluster, in_jobs, node_fingerprint

    name, suite = request.suite.stem, request.load()
    queue = Queue(check_cluster(on), suite.slurm, output.store.jobs(name).resolve())
    nodes = suite.slurm.nodes
    machine = over_nodes(node_fingerprint(queue, output.console.print), nodes)
    plan = _planted(make_plan(name, suite, machine.hardware_key, bool(machine.gpus), nodes), plant)
    return run_plan(plan, request.suite.read_text(), output, profile, do=in_jobs(queue))


def run_tables(name: str, tables: dict[str, Any], sets: list[str], output: Output, profile: bool) -> ExitCode:
    """A run whose suite was made from a command's options."""
    return run_plan(plan_of(name, suite_from(f"harness {name}", tables, sets)), f"# harness {name}\n", output, profile)


def single_run_suite(
    model: str, size: str, backend: str, zero_stage: int, steps: int, settings: dict[str, Any]
) -> dict[str, Any]:
    stage = {"zero_stage": zero_stage} if backend == "deepspeed" else {}
    return {
        "models": {"model": {"model": model, "size": size}},
        "backends": {"backend": {"backend": backend, **stage}},
        "defaults": settings,
        "throughput": {"reference": "backend", "repeats": 1, "steps": steps},
    }


def _refuse_foreign_loops(plan: Plan) -> None:
    """The trace is taken in our own loop; a stack that brings its own has none, which must not go unsaid."""
    for run in plan.runs:
        if run.kind is RunKind.TIMING and run.cell.stack != "native":
            raise BadInput("--profile", "stack", run.cell.stack, f'"native" (cell {run.cell.label})')


def run_plan(
    plan: Plan,
    suite_text: str,
    output: Output,
    profile: bool = False,
    hosts: Hosts | None = None,
    do: Doing | None = None,
) -> ExitCode:
    """
    Args:
        do: as `harness.run.carry_out` takes it.
    """
    from harness.report.terminal import show
    from harness.run import Workplace, carry_out

    if profile:
        _refuse_foreign_loops(plan)
    console = output.console
    command = shlex.join(["harness", *sys.argv[1:]])
    machine = over_nodes(fingerprint(), plan.nodes)
    place = Workplace(output.store, output.baseline_folder, machine, command, profile, hosts)
    with Display(console, plan.workers, quiet=output.quiet) as display:
        result, comparison = carry_out(plan, suite_text, place, display, do)
    if output.json:
        print(comparison.model_dump_json(indent=1))
    else:
        show(comparison, console)
        console.print(f"report: {result.report_file}", highlight=False, soft_wrap=True)
    return comparison.exit_code
