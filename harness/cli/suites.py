"""Commands about a whole suite: what to do, doing it, and judging it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import (
    BASELINES,
    RESULTS,
    Backends,
    Baselines,
    Json,
    Models,
    Profile,
    Quiet,
    Results,
    Sets,
    SuiteFile,
)
from harness.cluster.nodes import find_nodes
from harness.commands.output import Output
from harness.errors import BadInput

app = typer.Typer()


@app.command()
def plan(
    suite: SuiteFile,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    nnodes: Annotated[int, typer.Option(help="Hosts like this one, over which the ranks are spread.", min=1)] = 1,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Show what a suite would do here: cells, order, time and disk needed. Runs nothing."""
    from harness.commands import suites as commands

    commands.show_plan(commands.Request(suite, models, backends, sets or []), nnodes, results, json)


@app.command()
def run(
    suite: SuiteFile,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    profile: Profile = False,
    plant: Annotated[
        str | None,
        typer.Option(help="Make a cell worse on purpose: pi0-fsdp2=sleep:0.2.", metavar="CELL=KIND:AMOUNT"),
    ] = None,
    nnodes: Annotated[
        int | None, typer.Option(help="Hosts that run this same command; their results folder is shared.")
    ] = None,
    node_rank: Annotated[int | None, typer.Option(help="Which of them this is; 0 leads.")] = None,
    rdzv_endpoint: Annotated[str | None, typer.Option(help="The first host.", metavar="HOST:PORT")] = None,
    on: Annotated[
        str | None, typer.Option(help="slurm: as jobs, see [slurm] of the suite. local-jobs: likewise, but here.")
    ] = None,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train, evaluate, compare and report a suite. Run it again after any interruption: it goes on where it was."""
    from harness.commands import suites as commands

    request = commands.Request(suite, models, backends, sets or [])
    output = Output(results, baselines, json, quiet)
    if on is not None:
        if (nnodes, node_rank, rdzv_endpoint) != (None, None, None):
            raise BadInput("--on", None, on, "no --nnodes beside it: jobs have the nodes of slurm.nodes in the suite")
        raise SystemExit(commands.run_in_jobs(request, output, profile, plant, on))
    nodes = find_nodes(nnodes, node_rank, rdzv_endpoint, os.environ)
    raise SystemExit(commands.run_suite_file(request, output, profile, plant, nodes))


@app.command()
def train(
    model: Annotated[str, typer.Option(help="Model.")] = "pi0",
    train_backend: Annotated[str, typer.Option(help="deepspeed, fsdp, fsdp2 or ddp.")] = "fsdp2",
    size: Annotated[str, typer.Option(help="Size of the model.")] = "micro",
    zero_stage: Annotated[int, typer.Option(help="DeepSpeed's ZeRO stage.")] = 3,
    steps: Annotated[int, typer.Option(help="Measured steps, after 5 of warm-up.")] = 30,
    ranks: Annotated[int, typer.Option(help="Processes.")] = 2,
    micro_batch: Annotated[int, typer.Option(help="Samples per rank and step.")] = 8,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    sets: Sets = None,
    profile: Profile = False,
    results: Results = RESULTS,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Time one model under one backend, on synthetic data unless --set data.… says otherwise."""
    from harness.commands import suites as commands

    tables = commands.single_run_suite(
        model=model,
        size=size,
        backend=train_backend,
        zero_stage=zero_stage,
        steps=steps,
        settings={"ranks": ranks, "micro_batch": micro_batch, "precision": precision},
    )
    raise SystemExit(commands.run_tables("train", tables, sets or [], Output(results, BASELINES, json, quiet), profile))


@app.command()
def gate(
    suite: SuiteFile,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML here too.", metavar="FILE")] = None,
    bridge: Annotated[
        str | None,
        typer.Option(help="Run another environment's software beside this one's, block by block.", metavar="PYTHON"),
    ] = None,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a suite as a nightly check: refused when blind, alarms measured again, the exit code is the verdict."""
    from harness.commands import gate as commands
    from harness.commands.suites import Request

    request = Request(suite, models, backends, sets or [])
    raise SystemExit(commands.gate(request, junit, bridge, Output(results, baselines, json, quiet)))


@app.command()
def frontier(
    suite: SuiteFile,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    limit: Annotated[int, typer.Option(help="Largest micro-batch of interest.", min=1)] = 1024,
    address_space: Annotated[
        float | None,
        typer.Option("--address-space", help="GiB a rank may take beyond its libraries (CPU).", metavar="GIB"),
    ] = None,
    results: Results = RESULTS,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find each cell's largest micro-batch before out-of-memory, by bisection in fresh processes."""
    from harness.commands import frontier as commands
    from harness.commands.suites import Request

    request = Request(suite, models, backends, sets or [])
    raise SystemExit(commands.frontier(request, limit, address_space, Output(results, BASELINES, json, quiet)))


@app.command()
def calibrate(
    suite: SuiteFile,
    repeats: Annotated[int, typer.Option(help="Fresh processes of each cell to time now; 0: only stored results.")] = 0,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Say how much like runs differ on this machine, and how many of them each effect needs here."""
    from harness.commands import drills as commands
    from harness.commands.suites import Request

    request = Request(suite, models, backends, sets or [])
    commands.calibrate(request, repeats, Output(results, baselines, json, quiet=False))


@app.command()
def drill(
    suite: SuiteFile,
    real: Annotated[int, typer.Option(help="Nights of each kind to run for real; 0: recorded runs only.")] = 0,
    nights: Annotated[int, typer.Option(help="Nights of each kind to put together from recorded runs.")] = 100,
    baseline: Annotated[int, typer.Option(help="Fresh processes of the drill's baseline.")] = 10,
    processes: Annotated[int, typer.Option(help="Fresh processes of a night.")] = 3,
    cell: Annotated[str | None, typer.Option(help="The cell that gets the faults; the last when left out.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn.")] = 7,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    results: Results = RESULTS,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Plant faults and see whether the gate finds them, and whether it is quiet without. 11 when a promise breaks."""
    from harness.commands import drills as commands
    from harness.commands.suites import Request

    request = Request(suite, models, backends, sets or [])
    wanted = commands.DrillRequest(real, nights, baseline, processes, cell, seed)
    raise SystemExit(commands.drill(request, wanted, Output(results, BASELINES, json, quiet)))
