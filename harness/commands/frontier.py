"""`harness frontier`: the largest micro-batch of every cell of a suite."""

from __future__ import annotations

from functools import partial

from rich.console import Console
from rich.table import Table

from harness.commands.output import Output
from harness.commands.suites import Request
from harness.errors import ExitCode
from harness.frontier import CellFrontier, Frontier, Try, cells_of, find_frontier
from harness.machine import fingerprint
from harness.planning import make_plan
from harness.store import write_record

GIB, MIB = 2**30, 2**20


def frontier(request: Request, limit: int, address_space_gib: float | None, output: Output) -> ExitCode:
    """Finds, shows and records the frontier. FAILED when a cell has none."""
    machine, console = fingerprint(), output.console
    name = request.suite.stem
    plan = make_plan(name, request.load(), machine.hardware_key, bool(machine.gpus))
    budget = None if address_space_gib is None else round(address_space_gib * GIB)
    kept = output.store.frontier(name) / ("all" if budget is None else f"{budget // MIB}-MiB")
    record = Frontier(suite=name, fingerprint=machine, address_space_bytes=budget, cells=[])
    for cell in cells_of(plan):
        # Samples are only as large as they are: synthetic ones need no demonstrations to be made first.
        plain = cell.model_copy(update={"data": cell.data.model_copy(update={"source": "synthetic"})})
        found = find_frontier(
            plain, kept, machine, limit=limit, address_space_bytes=budget,
            on_try=partial(_tell, console, cell.label, output.quiet),
        )  # fmt: skip
        record = record.model_copy(update={"cells": [*record.cells, found]})
        write_record(kept / "frontier.json", record)
    if output.json:
        print(record.model_dump_json(indent=1))
    else:
        console.print(_table(record.cells))
        console.print(f"record: {kept / 'frontier.json'}", highlight=False, soft_wrap=True)
    return ExitCode.OK if all(cell.largest_micro_batch for cell in record.cells) else ExitCode.FAILED


def _tell(console: Console, label: str, quiet: bool, tried: Try) -> None:
    if not quiet:
        peak = "" if tried.peak_bytes is None else f", {tried.peak_bytes / MIB:.0f} MiB"
        console.print(f"{label}, micro-batch {tried.micro_batch}: {tried.outcome}{peak}", highlight=False)


def _table(found: list[CellFrontier]) -> Table:
    table = Table(title="largest micro-batch per rank", title_justify="left")
    for column in ("cell", "micro-batch", "peak MiB", "next to fail", ""):
        table.add_column(column)
    for cell in found:
        largest = cell.largest_micro_batch
        fitted = next((t for t in cell.tries if t.micro_batch == largest), None)
        failed = min((t.micro_batch for t in cell.tries if t.outcome == "OOM"), default=None)
        table.add_row(
            cell.label,
            "–" if largest is None else str(largest),
            "–" if fitted is None or fitted.peak_bytes is None else f"{fitted.peak_bytes / MIB:.0f}",
            "–" if failed is None else str(failed),
            cell.reason or ("" if cell.bounded else "the search's own limit"),
        )
    return table
