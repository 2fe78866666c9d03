"""The report's tables by name, for a pull request, a chat or a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from harness.compare.comparison import Comparison
from harness.errors import BadInput
from harness.plan import Plan
from harness.report.evaluation import pairs_table, rates_table
from harness.report.steps import steps_tables
from harness.report.table import WIDTH, Table
from harness.report.training import checkpoint_table, memory_table, parity_table, speed_tables
from harness.report.verdicts import verdict_table

NARROWEST = 40


class Titled(NamedTuple):
    """A table with its heading."""

    title: str
    table: Table


def _throughput(comparison: Comparison, plan: Plan) -> list[Titled]:
    speed = [Titled(f"Speed, {model}", table) for model, table in speed_tables(comparison, plan).items()]
    return speed + [Titled(f"Within a step, {model}", table) for model, table in steps_tables(comparison).items()]


def _success(comparison: Comparison, plan: Plan) -> list[Titled]:
    return [
        Titled("LIBERO success", rates_table(comparison, plan)),
        Titled("Checkpoints scene by scene", pairs_table(comparison)),
    ]


TABLES: dict[str, Callable[[Comparison, Plan], list[Titled]]] = {
    "verdicts": lambda comparison, _: [Titled("Verdicts", verdict_table(comparison))],
    "throughput": _throughput,
    "memory": lambda comparison, _: [Titled("Memory", memory_table(comparison))],
    "parity": lambda comparison, _: [Titled("Fair, and the same loss?", parity_table(comparison))],
    "success": _success,
    "checkpoint": lambda comparison, _: [Titled("Checkpoints", checkpoint_table(comparison))],
}


def check_request(name: str, width: int) -> None:
    """Raises BadInput on a name that is none of `TABLES`, and on a page too narrow for any table."""
    if name not in TABLES:
        raise BadInput("--table", None, name, "one of the report's tables", TABLES)
    if width < NARROWEST:
        raise BadInput("--width", None, width, f"{NARROWEST} columns or more")


def tables(name: str, comparison: Comparison, plan: Plan) -> list[Titled]:
    """The tables of one subject, a key of `TABLES`, that have rows."""
    return [titled for titled in TABLES[name](comparison, plan) if titled.table.rows]


def table_text(name: str, comparison: Comparison, plan: Plan, width: int = WIDTH) -> str:
    """One subject's tables as Markdown, ending with a newline. Raises BadInput as `check_request` does."""
    check_request(name, width)
    found = tables(name, comparison, plan)
    if not found:
        return f"{comparison.result} has nothing for a {name} table.\n"
    return "\n\n".join(f"**{title}**\n\n{table.text(width)}" for title, table in found) + "\n"
