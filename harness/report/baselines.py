"""Accepted baselines as a terminal table: what is in them, how much, and who put it there."""

from __future__ import annotations

from rich.table import Table

from harness.compare.baseline import Baseline


def baseline_table(baseline: Baseline) -> Table:
    """One row per cell or arm, with its processes or episodes, and the latest acceptance as the caption."""
    latest = baseline.accepted[-1]
    table = Table(
        title=f"{baseline.suite} on {baseline.hardware_key}",
        caption=f"{latest.at} {latest.by}: {latest.reason} ({latest.result})",
        box=None,
    )
    for name in ("subject", "kind", "holds"):
        table.add_column(name)
    for cell in baseline.cells:
        held = ", ".join(f"{name} × {len(values)}" for name, values in cell.values.items())
        table.add_row(cell.cell.label, cell.kind, held)
    for arm in baseline.arms:
        successes, valid = sum(c.successes for c in arm.counts), sum(c.valid for c in arm.counts)
        table.add_row(arm.arm, "episodes", f"{successes}/{valid} in {len(arm.counts)} tasks, {arm.protocol.name}")
    return table
