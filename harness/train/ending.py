"""What stays of a process group that has ended: its steps in one table, its figures, its record. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.statistics.moments import of_all
from harness.store import read_record, write_atomically
from harness.train.journal import EXPORT, read_rows, report_file, steps_file
from harness.train.meter import final_loss, merge_ranks, speed
from harness.train.peaks import peak_flops, utilisation
from harness.train.records import Memory, Outcome, RankReport, RunSpec, Speed, StepRow

STEPS_FILE = "steps.parquet"


def read_steps(attempt_folder: Path) -> list[StepRow]:
    """All steps of an attempt that every rank has finished: from `steps.parquet`, or while it runs from the ranks."""
    file = attempt_folder / STEPS_FILE
    if not file.exists():
        ranks = len(list(attempt_folder.glob("rank-*.steps.jsonl")))
        return merge_ranks([read_rows(steps_file(attempt_folder, rank)) for rank in range(ranks)])
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(file).read()  # `read_table` imports pandas, where it is installed
    return [StepRow.model_validate(row) for row in table.to_pylist()]


def gather_figures(spec: RunSpec, outcome: Outcome, gpus: Sequence[str] = ()) -> dict[str, Any]:
    """Writes `steps.parquet` and returns the fields of RunRecord that hold figures.

    Only a run that ended well has any; in all others they are None.

    Args:
        gpus: names of the machine's devices; empty on CPU.
    """
    attempt, ranks = Path(spec.folder), range(spec.run.cell.ranks)
    rows = merge_ranks([read_rows(steps_file(attempt, rank)) for rank in ranks])
    _write_steps(attempt / STEPS_FILE, rows)
    ended_well = outcome is Outcome.OK
    reports = [read_record(report_file(attempt, rank), RankReport) for rank in ranks] if ended_well else []
    first = reports[0] if reports else None
    cpu_seconds = of_all([report.cpu_seconds_per_step for report in reports], max)
    figures = speed(rows, spec.run.warmup_steps, cpu_seconds) if first else None
    return {
        "workload": first.workload if first else None,
        "in_force": first.in_force if first else None,
        "speed": _with_utilisation(figures, first, gpus) if figures and first else None,
        "memory": _memory(reports) if reports else None,
        "busy_cpu_mhz": of_all([report.busy_cpu_mhz for report in reports], min),
        "collectives": first.collectives if first else None,
        "phase_peaks": first.phase_peaks if first else None,
        "exposed_communication_share": of_all([report.exposed_communication_share for report in reports], max),
        "final_loss": final_loss(rows) if ended_well else None,
        "checkpoint_save_seconds": of_all([report.checkpoint_save_seconds for report in reports], max),
        "checkpoint_load_seconds": of_all([report.checkpoint_load_seconds for report in reports], max),
        "checkpoint_bytes": first.checkpoint_bytes if first else None,
        "export": EXPORT if ended_well and (attempt / EXPORT).exists() else None,
    }


def _with_utilisation(figures: Speed, report: RankReport, gpus: Sequence[str]) -> Speed:
    workload, in_force = report.workload, report.in_force
    flops, rate = workload.training_flops_per_sample, figures.samples_per_second
    peak = peak_flops(gpus, in_force.autocast_dtype or in_force.parameter_dtype)
    return figures.model_copy(
        update={
            "model_flops_per_second": None if flops is None else flops * rate,
            "mfu": utilisation(flops, rate, in_force.world_size, peak),
            "hfu": utilisation(workload.hardware_flops_per_sample, rate, in_force.world_size, peak),
        }
    )


def _memory(reports: list[RankReport]) -> Memory:
    return Memory(
        peak_resident_bytes=max(report.peak_resident_bytes for report in reports),
        peak_allocated_bytes=of_all([report.peak_allocated_bytes for report in reports], max),
        peak_reserved_bytes=of_all([report.peak_reserved_bytes for report in reports], max),
        shards=[report.shard for report in reports],
        activation_bytes=reports[0].activation_bytes,
    )


def _write_steps(file: Path, rows: list[StepRow]) -> None:
    if not rows:
        return
    import pyarrow
    import pyarrow.parquet

    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row.model_dump() for row in rows]), buffer)
    write_atomically(file, buffer.getvalue().to_pybytes())
