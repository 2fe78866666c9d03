"""`harness doctor`."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.doctor import examine
from harness.errors import ExitCode


def doctor(results: Path, as_json: bool) -> ExitCode:
    findings = examine(results)
    lacking = [finding for finding in findings if finding.required and not finding.ok]
    if as_json:
        print(json.dumps([finding.model_dump() for finding in findings], indent=1))
        return ExitCode.USAGE if lacking else ExitCode.OK
    console = Console()
    table = Table(box=None)
    for column in ("", "", "found", "how to mend it"):
        table.add_column(column)
    for finding in findings:
        mark = "[green]ok[/green]" if finding.ok else "[red]lacking[/red]" if finding.required else "[dim]note[/dim]"
        table.add_row(mark, finding.name, finding.found, "" if finding.ok else finding.mend)
    console.print(table)
    return ExitCode.USAGE if lacking else ExitCode.OK
