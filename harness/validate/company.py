"""Runs that share a process group, one after the other. No torch here.

Starting a group takes ten times as long as eight steps of a small model. Only runs of one backend on one stack share:
no backend ever meets another one in its process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.machine import Fingerprint
from harness.records import Record
from harness.store import RUN_FILE, write_record
from harness.train.ending import gather_figures
from harness.train.journal import report_file
from harness.train.launch import launch
from harness.train.records import Outcome, RunSpec

COMPANY_FILE = "company.json"


class Company(Record):
    """`company.json`, in the folder of its last run: what the ranks do, in this order."""

    specs: list[RunSpec]


def launch_together(specs: Sequence[RunSpec], machine: Fingerprint, hang_seconds: float) -> None:
    """Makes the runs in one process group. Those that ended well are recorded, each in its attempt's folder.

    When one fails, so does the group, and those after it have no record, or the last one that of the failure: what they
    would do by themselves is to be seen in a group of their own.

    Args:
        hang_seconds: for each of the runs.

    Raises: as `harness.train.launch.launch`.
    """
    *others, last = specs
    folder = Path(last.folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_record(folder / COMPANY_FILE, Company(specs=list(specs)))
    patience = hang_seconds * len(specs)
    record = launch(last, machine, hang_seconds=patience, on_step=lambda _: None, worker="harness.validate.worker")
    for spec in others:
        attempt = Path(spec.folder)
        if all(report_file(attempt, rank).exists() for rank in range(spec.run.cell.ranks)):
            figures = gather_figures(spec, Outcome.OK, machine.gpus)
            own = {"run": spec.run, "attempt": spec.attempt, "seed": spec.seed, "outcome": Outcome.OK, "failure": None}
            write_record(attempt / RUN_FILE, record.model_copy(update=own | figures))
