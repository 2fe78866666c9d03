"""`harness baseline …`: the reference values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import BASELINES, RESULTS, Baselines, Json, ResultName, Results
from harness.commands.output import Output

app = typer.Typer(help="Accept and show the reference values a later run is compared with.", no_args_is_help=True)


@app.command("accept")
def baseline_accept(
    result: ResultName,
    reason: Annotated[str, typer.Option(help="Why these values are the reference from now on.")],
    cells: Annotated[str | None, typer.Option(help="Only these cells: a,b. The others stay as they are.")] = None,
    extend: Annotated[bool, typer.Option("--extend", help="Add to the values that are there.")] = False,
    bridge: Annotated[
        Path | None,
        typer.Option(help="Carry this baseline over: take the old side of a bridged result.", metavar="FILE"),
    ] = None,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Make a result the reference for its suite on this hardware. The file is meant to be committed and reviewed."""
    from harness.commands import baselines as commands

    request = commands.AcceptRequest(result, reason, cells, extend, bridge)
    commands.accept(request, Output(results, baselines, json, quiet=False))


@app.command("diff")
def baseline_diff(
    result: ResultName,
    extend: Annotated[bool, typer.Option("--extend", help="As for accept.")] = False,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Show what accepting a result would change, without changing it."""
    from harness.commands import baselines as commands

    commands.diff(result, extend, Output(results, baselines, json, quiet=False))


@app.command("show")
def baseline_show(
    suite: Annotated[str | None, typer.Argument(help="Only this suite's.", metavar="SUITE")] = None,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Show the accepted baselines."""
    from harness.commands import baselines as commands

    commands.show(suite, baselines, json)


@app.command("expire")
def baseline_expire(
    suite: Annotated[str, typer.Argument(help="The suite's name, such as fsdp2.", metavar="SUITE")],
    reason: Annotated[str, typer.Option(help="Why these values must not be the reference any more.")],
    cells: Annotated[str | None, typer.Option(help="Only these cells or arms: a,b.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Hardware key; this machine's when left out.")] = None,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """End the use of a baseline: verdicts on it are STALE until somebody accepts again."""
    from harness.commands import baselines as commands

    commands.expire(suite, reason, cells, hardware, Output(RESULTS, baselines, json, quiet=False))


@app.command("history")
def baseline_history(
    suite: Annotated[str | None, typer.Argument(help="Only this suite's.", metavar="SUITE")] = None,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Show who accepted, extended or ended which baseline, when and why."""
    from harness.commands import baselines as commands

    commands.history(suite, baselines, json)
