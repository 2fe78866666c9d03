"""Commands about the models and the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import BASELINES, RESULTS, Json, Quiet, Results, Sets
from harness.commands.output import Output

app = typer.Typer()


@app.command("models")
def list_models(
    names: Annotated[
        list[str] | None, typer.Argument(help="Only these; a module:function of your own too.", metavar="MODEL")
    ] = None,
    size: Annotated[str, typer.Option(help="full, micro or tiny.")] = "full",
    precision: Annotated[str, typer.Option(help="Of the static memory: bf16 or fp32.")] = "bf16",
    json: Json = False,
) -> None:
    """List the models: parameters by part, tokens and operations per sample, static memory per rank."""
    from harness.commands import models as commands

    commands.show_models(names or [], size, precision, json)


@app.command()
def simulate(
    model: Annotated[str, typer.Argument(help="One of `harness models`, or module:function.", metavar="MODEL")],
    size: Annotated[str, typer.Option(help="full, micro or tiny.")] = "full",
    world: Annotated[str, typer.Option(help="Numbers of ranks.", metavar="N,N,…")] = "8,64,1024",
    backend: Annotated[
        str, typer.Option(help="ddp, fsdp, fsdp2, fsdp2-root, zero1, zero2, zero3.", metavar="NAME,NAME,…")
    ] = "ddp,fsdp2,fsdp2-root,zero1,zero2,zero3",
    precision: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
    micro_batch: Annotated[int, typer.Option(help="Samples per rank and micro-batch.", min=1)] = 8,
    accumulation: Annotated[int, typer.Option(help="Micro-batches per step.", min=1)] = 1,
    checkpointing: Annotated[
        bool, typer.Option("--activation-checkpointing", help="Layers are computed again in the backward.")
    ] = False,
    device_memory: Annotated[str | None, typer.Option(help="What must hold a rank: 80GiB.")] = None,
    bandwidth: Annotated[str | None, typer.Option(help="What a rank sends per second: 50GB.")] = None,
    compute_seconds: Annotated[
        float | None, typer.Option(help="A step without communication, as measured on one device.", min=0)
    ] = None,
    formula: Annotated[bool, typer.Option("--formula", help="FSDP2 by formula as well: quick, and the same.")] = False,
    json: Json = False,
) -> None:
    """Predict memory and communication per rank on many ranks, without any of them."""
    from harness.commands import simulate as commands

    request = commands.SimulationRequest(
        model=model,
        size=size,
        backends=backend,
        worlds=world,
        precision=precision,
        micro_batch=micro_batch,
        accumulation=accumulation,
        activation_checkpointing=checkpointing,
        device_memory=device_memory,
        bandwidth=bandwidth,
        compute_seconds=compute_seconds,
        formula=formula,
    )
    commands.simulate(request, json)


@app.command()
def validate(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Of `harness models`, or module:function of your own; or training scripts (.py), which are only read.",
            metavar="MODEL",
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="ddp, fsdp, fsdp2, fsdp2-root, zero1, zero2, zero3.", metavar="NAME,NAME,…")
    ] = "fsdp2",
    stack: Annotated[str, typer.Option(help="native, trainer.", metavar="NAME,NAME")] = "native",
    every: Annotated[bool, typer.Option("--all", help="All models, backends and stacks.")] = False,
    size: Annotated[str, typer.Option(help="full, micro or tiny.")] = "micro",
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    ranks: Annotated[int, typer.Option(help="Processes.", min=1)] = 2,
    sets: Sets = None,
    write: Annotated[Path | None, typer.Option(help="Write the table here too, as Markdown.", metavar="FILE")] = None,
    results: Results = RESULTS,
    quiet: Quiet = False,
) -> None:
    """Try a model under a backend: contract, training, parity with DDP, checkpoint, resume, export. 12: one failed."""
    from harness.commands import validate as commands
    from harness.validate.request import ValidationRequest

    request = ValidationRequest(
        models=models or [],
        size=size,
        backends=_split(backend),
        stacks=_split(stack),
        precision=precision,
        ranks=ranks,
        sets=sets or [],
    )
    raise SystemExit(commands.validate(request, every, write, Output(results, BASELINES, json=False, quiet=quiet)))


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


@app.command()
def convert(
    checkpoint: Annotated[Path, typer.Argument(help="The export folder of a learning run.", metavar="CHECKPOINT")],
    format_name: Annotated[str, typer.Option("--format", help="Names to write: dexbotic-cogact, lerobot-pi0, …")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A new folder.", metavar="DIR")],
    shard_gb: Annotated[float, typer.Option(help="Largest file, in GB.", min=0.001)] = 5.0,
    json: Json = False,
) -> None:
    """Write a trained policy as safetensors in the names of transformers, openpi, lerobot or Dexbotic."""
    from harness.commands import models as commands

    commands.export(checkpoint, format_name, output, shard_gb, json)


@app.command()
def doctor(results: Results = RESULTS, json: Json = False) -> None:
    """Say what this machine has, what it lacks, and how to mend it. Exit code 2 when something needed is missing."""
    from harness.commands import machine as commands

    raise SystemExit(commands.doctor(results, json))
