"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SuiteFile = Annotated[Path, typer.Argument(help="A suite, such as suites/fsdp2.toml.", metavar="SUITE")]
ResultName = Annotated[
    str, typer.Argument(help="A result's folder, SUITE/ID, ID, or a suite's name for its newest.", metavar="RESULT")
]
Results = Annotated[Path, typer.Option("--results", help="Where results are kept.", metavar="DIR")]
Baselines = Annotated[Path, typer.Option("--baselines", help="Where baselines are kept.", metavar="DIR")]
Models = Annotated[str | None, typer.Option("--models", help="Only these of the suite's models: a,b, or all.")]
Backends = Annotated[str | None, typer.Option("--backends", help="Only these of the suite's backends: a,b, or all.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one value: --set throughput.steps=10. May be repeated.", metavar="KEY=VALUE"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Profile = Annotated[
    bool, typer.Option("--profile", help="Leave a trace of two further steps of each cell's first timing run.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the final summary only.")]

RESULTS, BASELINES = Path("results"), Path("baselines")
