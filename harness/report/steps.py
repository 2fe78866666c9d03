"""Where the time of a step goes, and how unequal steps and ranks are: one table per model."""

from __future__ import annotations

from harness.compare.comparison import Comparison
from harness.compare.results import unique
from harness.compare.summary import CellSummary
from harness.plan import backend_key, model_key
from harness.report.figures import MISSING, milliseconds, number, percent, plural
from harness.report.table import Table


def steps_tables(comparison: Comparison) -> dict[str, Table]:
    """Model key → its timed cells. None for a model whose runs say nothing of phases, as older records do not."""
    tables = {}
    for model in unique(model_key(cell.label) for cell in comparison.cells):
        cells = [cell for cell in comparison.cells if model_key(cell.label) == model and cell.planned_runs]
        if any(cell.within is not None and cell.within.forward_seconds is not None for cell in cells):
            tables[model] = _table(cells)
    return tables


def _table(cells: list[CellSummary]) -> Table:
    on_gpu = any(cell.peak_allocated_bytes is not None for cell in cells)
    of_devices = ["MFU %", "HFU %", "J/sample"] if on_gpu else []
    table = Table(
        ["Backend", "p50 ms", "p95", "p99", "Fwd %", "Bwd %", "Update %", "Wait %", "Skew %", "Data ms", *of_devices],
        reading="p50, p95, p99: of the measured steps' times; the median over runs, and the largest of the runs'. Fwd, "
        "Bwd, Update: their shares of p50, communication inside included; Wait: the rest, for other ranks at the end. "
        "Skew: how far apart the ranks were at the end of a phase, at most. Data: fetching a step's batches, outside "
        "of the step." + (" MFU, HFU: of the devices' peak." if on_gpu else " MFU and energy are known of GPUs only."),
        spare=("Data ms", "p99", "HFU %"),
    )
    for cell in cells:
        table.add(backend_key(cell.label), *_figures(cell, on_gpu))
        built = cell.within.built_steps if cell.within else 0
        if built:
            table.notes.append(f"{cell.label}: something was compiled in {plural(built, 'measured step')}.")
    if on_gpu:
        table.notes += _unknown(cells)
    return table


def _figures(cell: CellSummary, on_gpu: bool) -> list[str]:
    within = cell.within
    if within is None:
        return [MISSING] * (9 + 3 * on_gpu)
    phases = [within.forward_seconds, within.backward_seconds, within.optimizer_seconds]
    known = [seconds for seconds in phases if seconds is not None]
    rest = max(0.0, within.p50_step_seconds - sum(known)) if len(known) == len(phases) else None
    shares = (None if part is None else part / within.p50_step_seconds for part in (*phases, rest, within.skew_seconds))
    return [
        milliseconds(within.p50_step_seconds),
        milliseconds(cell.p95_step_seconds),
        milliseconds(cell.p99_step_seconds),
        *(percent(share) for share in shares),
        milliseconds(cell.data_seconds),
        *([percent(within.mfu), percent(within.hfu), number(within.joules_per_sample)] if on_gpu else []),
    ]


def _unknown(cells: list[CellSummary]) -> list[str]:
    """What a GPU could have told and did not."""
    timed = [cell.within for cell in cells if cell.within is not None]
    notes = []
    if timed and all(within.mfu is None for within in timed):
        notes.append("No MFU: the devices' peak, or the operations of a step, are not known.")
    if timed and all(within.joules_per_sample is None for within in timed):
        notes.append("No energy: the driver's library (NVML) counts none on these devices.")
    return notes
