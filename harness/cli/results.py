"""Commands about what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import BASELINES, RESULTS, Baselines, Json, ResultName, Results
from harness.commands.output import Output

app = typer.Typer()


@app.command()
def compare(
    result: Annotated[str | None, typer.Argument(help="As for `harness report`.", metavar="RESULT")] = None,
    published: Annotated[bool, typer.Option("--published", help="Judge other people's tables instead.")] = False,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Compare a stored result again, with the baseline there is now. Ends with the verdict's exit code."""
    from harness.commands import results as commands

    if published:
        commands.compare_published_tables(result, json)
    else:
        raise SystemExit(commands.compare_again(result, Output(results, baselines, json, quiet=False)))


@app.command()
def report(
    result: Annotated[str | None, typer.Argument(help="As for `harness compare`.", metavar="RESULT")] = None,
    table: Annotated[
        str | None,
        typer.Option(help="One table alone: throughput, memory, success, checkpoint, parity or verdicts."),
    ] = None,
    width: Annotated[int, typer.Option(help="Columns a table may take; narrow ones leave columns out.")] = 100,
    plots: Annotated[
        Path | None, typer.Option(help="Write the plots here, PNG and SVG, light and dark.", metavar="DIR")
    ] = None,
    sheets: Annotated[
        str | None,
        typer.Option(
            help="Replay episodes into contact sheets for the page: failures or all. A few seconds each, once.",
            metavar="WHICH",
        ),
    ] = None,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option("--compare", help="Two results beside each other instead.", metavar="RESULT RESULT"),
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="Other people's tables instead.")] = False,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Print a stored result's report as Markdown, and write it as a page (report.html) beside it."""
    from harness.commands import reports as commands

    request = commands.ReportRequest(result, table, width, plots, sheets, pair, published)
    commands.report(request, Output(results, baselines, json, quiet=False))


@app.command("export")
def export_result(
    result: ResultName,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            help="csv, parquet, junit, pytest-benchmark, github-benchmark, wandb, mlflow or tensorboard.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File or folder to write.", metavar="PATH")
    ] = None,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
) -> None:
    """Write a stored result for another program: tables, benchmark files, or an experiment tracker, offline."""
    from harness.commands import reports as commands

    commands.export(result, format_name, output, Output(results, baselines, json=False, quiet=False))


@app.command()
def history(
    suite: Annotated[str | None, typer.Argument(help="Only this suite's results.", metavar="SUITE")] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write, three Parquet files.", metavar="DIR")
    ] = Path("history"),
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Write every stored result's runs, verdicts and episodes as Parquet, for pandas and DuckDB."""
    from harness.commands import reports as commands

    commands.history(suite, output, Output(results, BASELINES, json, quiet=False))


@app.command()
def clean(
    results: Results = RESULTS,
    demonstrations: Annotated[bool, typer.Option("--demos", help="Demonstrations and decoded frames too.")] = False,
    json: Json = False,
) -> None:
    """Free the checkpoints of finished runs and the leftovers of failed attempts. Records and exports stay."""
    from harness.commands import results as commands

    commands.clean(results, demonstrations, json)
