"""Tables of `harness calibrate` and `harness drill`."""

from __future__ import annotations

from harness.compare.calibration import EFFECTS, Calibration
from harness.compare.drill import LEAST_CAUGHT, MOST_FALSE, DrillReport, DrillRow
from harness.report.figures import MISSING, percent
from harness.report.table import Table


def calibration_table(found: Calibration) -> Table:
    """Noise of every cell, and the fresh processes that each effect needs."""
    table = Table(
        ["Cell", "Metric", "n", "Within", "Between", *(f"{effect:.0%}" for effect in EFFECTS)],
        reading="Within, between: standard deviation in percent of processes of one result, and of results beyond "
        "that. Right: fresh processes needed, in the baseline and in a night alike, to see a change so large with 90% "
        f"probability at a false-alarm rate of {found.false_alarm_rate:g} over {found.tests} figures. Processes of "
        "one night do not average out what differs between nights: spread a baseline over several.",
    )
    for noise in found.noise:
        table.add(
            noise.cell,
            noise.metric.removesuffix("_seconds").removesuffix("_bytes"),
            f"{noise.processes}",
            _share(noise.within.log_sd if noise.within else None),
            _share(noise.between_sd),
            *(MISSING if needed.processes is None else str(needed.processes) for needed in noise.needed),
        )
    if found.run_noise is not None:
        table.notes.append(f"For the suite: [gate] run_noise = {found.run_noise:.4f}")
    return table


def _share(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.2f}"


def drill_table(found: DrillReport) -> Table:
    """What was planted, how often it was called, and on what that figure stands."""
    table = Table(
        ["Planted", "Where", "Nights", "Source", "Called", "Share", "Promise"],
        reading=f"Baseline of {found.baseline_processes} processes, nights of {found.night_processes}, and as many "
        "again where a night alarms. Real: fresh processes for every night. Resampled: put together from recorded "
        "runs, whole nights apart from the baseline's. Called: REGRESSED there (for damage: any exit code but 0). "
        f"Share: percent with its 95% interval. Promise: at least {LEAST_CAUGHT:.0%} of slowdowns caught, at most "
        f"{MOST_FALSE:.0%} of nights without a fault called.",
        spare=("Promise",),
    )
    for row in found.rows:
        table.add(row.plant, row.where, str(row.nights), row.source, str(row.called), _interval(row), _promise(row))
    return table


def _interval(row: DrillRow) -> str:
    share = row.share
    if share is None or share.low is None or share.high is None:
        return MISSING
    return f"{percent(share.estimate)} [{percent(share.low)}, {percent(share.high)}]"


def _promise(row: DrillRow) -> str:
    return "too few to say" if row.holds is None else "kept" if row.holds else "broken"
