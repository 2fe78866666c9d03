"""Was a run disturbed by what else its machine did? Judged by the machine alone, never by the run's own times."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from harness.train.records import RunRecord

FOREIGN_CPU_SHARE = 0.10
"""Processes of others may take so much of all cores' time."""
CLOCK_SHARE = 0.90
"""A core that runs below this share of the clock it had in the other runs has been slowed down."""


def usual_mhz(runs: Iterable[RunRecord]) -> float | None:
    """The median over runs of the clock under their own load; None where no run could read it."""
    found = [run.busy_cpu_mhz for run in runs if run.busy_cpu_mhz is not None]
    return median(found) if found else None


def disturbance(run: RunRecord, mhz: float | None) -> str | None:
    """What disturbed the run, in words; None when nothing did, as far as the machine tells. Of several hosts the worst
    counts.

    Args:
        mhz: the machine's usual clock (`usual_mhz`).
    """
    told = []
    everywhere = [run.host, *(host.conditions for host in run.hosts)]
    known = [conditions for conditions in everywhere if conditions is not None]
    share = max((conditions.foreign_cpu_share or 0.0 for conditions in known), default=0.0)
    processes = max((conditions.foreign_gpu_processes or 0 for conditions in known), default=0)
    if share > FOREIGN_CPU_SHARE:
        told.append(f"other processes took {share:.0%} of the CPU")
    if processes:
        told.append(f"other processes on the GPUs: {processes}")
    if mhz is not None and run.busy_cpu_mhz is not None and run.busy_cpu_mhz < CLOCK_SHARE * mhz:
        told.append(f"the clock was at {run.busy_cpu_mhz:.0f} MHz, usually {mhz:.0f}")
    return ", ".join(told) or None
