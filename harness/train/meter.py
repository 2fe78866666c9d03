"""From the times of steps to the figures of a run. Pure arithmetic; no torch here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from statistics import median

from harness.statistics.moments import of_all
from harness.train.records import Speed, StepRow

FEWEST_STEPS = 6
"""Fewer measured steps than this (for a pair in turns: fewer turns) cannot show that a run has settled."""
DRIFT = 0.05
"""The last third of a steady run is at most this much slower or faster than the first, beyond chance."""
CHANCE = 3.0
"""A drift within this many standard errors of zero is chance."""
SCATTER = 0.5
"""Interquartile range over median; a run that scatters more has no typical step."""

_NORMAL_MAD = 1.4826
"""Standard deviation over median absolute deviation, for the normal distribution."""
_MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, for the normal distribution: sqrt(pi / 2)."""


class Steadiness(StrEnum):
    """Whether the measured steps stand for what the run would go on to do."""

    STEADY = "STEADY"
    SLOWING = "SLOWING"
    """The last third is slower than the first: throttling, or memory that fills."""
    UNSTEADY = "UNSTEADY"
    """Still getting faster, too scattered, or too few steps to tell."""


@dataclass(frozen=True)
class Lap:
    wall_seconds: float
    cpu_seconds: float
    """Of this process, all its threads."""


class Stopwatch:
    """Wall and process CPU time since `start`, from clocks given at construction."""

    def __init__(
        self, wall: Callable[[], float] = time.perf_counter, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._wall, self._cpu = wall, cpu
        self.start()

    def start(self) -> None:
        self._started = self._wall(), self._cpu()

    def stop(self) -> Lap:
        return Lap(self._wall() - self._started[0], self._cpu() - self._started[1])


def merge_ranks(by_rank: Sequence[Sequence[StepRow]]) -> list[StepRow]:
    """One row per step that all ranks have finished. The slowest rank's times count; the rest is global anyway."""
    if not by_rank:
        return []
    indexed = [{row.step: row for row in rows} for rows in by_rank]
    shared = sorted(set.intersection(*(set(rows) for rows in indexed)))
    return [_slowest([rows[step] for rows in indexed]) for step in shared]


def _slowest(rows: Sequence[StepRow]) -> StepRow:
    busiest = max(rows, key=lambda row: sum(_phases(row) or [0.0]))
    return rows[0].model_copy(
        update={
            "step_seconds": max(row.step_seconds for row in rows),
            "data_seconds": max(row.data_seconds for row in rows),
            "forward_seconds": busiest.forward_seconds,
            "backward_seconds": busiest.backward_seconds,
            "optimizer_seconds": busiest.optimizer_seconds,
            "skew_seconds": _skew(rows) if len(rows) > 1 else rows[0].skew_seconds,
            "joules": of_all((row.joules for row in rows), sum),
            "built": any(row.built for row in rows),
        }
    )


def _phases(row: StepRow) -> list[float] | None:
    parts = (row.forward_seconds, row.backward_seconds, row.optimizer_seconds)
    known = [part for part in parts if part is not None]
    return known if len(known) == len(parts) else None


def _skew(rows: Sequence[StepRow]) -> float | None:
    """Ranks begin a step together: how far apart they are at the end of a phase is their own doing."""
    phases = [found for row in rows if (found := _phases(row)) is not None]
    if len(phases) < len(rows):
        return None
    ends = zip(*(accumulate(parts) for parts in phases), strict=True)
    return float(max(max(at) - min(at) for at in ends))


def measured(rows: Sequence[StepRow], warmup_steps: int) -> list[StepRow]:
    """The rows that count: made by this attempt, its first `warmup_steps` dropped (a fresh process warms up again)."""
    return [row for row in rows if not row.resumed][warmup_steps:]


def speed(rows: Sequence[StepRow], warmup_steps: int, cpu_seconds_per_step: float | None) -> Speed | None:
    """Figures of a run from its merged rows; None when no step is left after warm-up.

    Samples and tokens per second are all ranks' work over the slowest rank's time, data loading left out.
    """
    kept = measured(rows, warmup_steps)
    if not kept or cpu_seconds_per_step is None:
        return None
    seconds, samples = [row.step_seconds for row in kept], sum(row.samples for row in kept)
    joules = of_all((row.joules for row in kept), sum)
    return Speed(
        warmup_steps=warmup_steps,
        measured_steps=len(kept),
        median_step_seconds=median(seconds),
        p95_step_seconds=percentile(seconds, 0.95),
        p99_step_seconds=percentile(seconds, 0.99),
        median_forward_seconds=of_all((row.forward_seconds for row in kept), median),
        median_backward_seconds=of_all((row.backward_seconds for row in kept), median),
        median_optimizer_seconds=of_all((row.optimizer_seconds for row in kept), median),
        median_skew_seconds=of_all((row.skew_seconds for row in kept), median),
        median_data_seconds=median(row.data_seconds for row in kept),
        samples_per_second=samples / sum(seconds),
        tokens_per_second=sum(row.tokens for row in kept) / sum(seconds),
        cpu_seconds_per_step=cpu_seconds_per_step,
        steadiness=steadiness(seconds),
        joules_per_sample=None if joules is None else joules / samples,
        built_steps=[row.step for row in kept if row.built],
        turn_step_seconds=_by_turn(kept),
    )


def _by_turn(rows: Sequence[StepRow]) -> list[float]:
    turns: dict[int, list[float]] = {}
    for row in rows:
        if row.turn is not None:
            turns.setdefault(row.turn, []).append(row.step_seconds)
    return [median(seconds) for _, seconds in sorted(turns.items())]


def steadiness(seconds: Sequence[float]) -> Steadiness:
    """Compares the medians of the first and the last third of the measured steps, on the log scale.

    The standard error of their difference comes from the median absolute deviation of each third from its own
    median, so that a drift does not hide itself.
    """
    if len(seconds) < FEWEST_STEPS:
        return Steadiness.UNSTEADY
    if percentile(seconds, 0.75) - percentile(seconds, 0.25) > SCATTER * median(seconds):
        return Steadiness.UNSTEADY
    change = _drift([math.log(value) for value in seconds])
    if change == 0:
        return Steadiness.STEADY
    return Steadiness.SLOWING if change > 0 else Steadiness.UNSTEADY


def paired_steadiness(reference: Sequence[float], candidate: Sequence[float]) -> Steadiness:
    """Whether the ratio of two runs that took turns has settled: STEADY or UNSTEADY.

    Judged are the log ratios of turns of the same number, which stand side by side in time, by the limits of
    `steadiness`. What weighs on both runs alike, a machine that gets slower or faster, is not in them; what is left
    is a run that warms up, or slows down, by itself.

    Args:
        reference: median step seconds of each measured turn.
        candidate: likewise, of a run of the same block.
    """
    ratios = [math.log(b / a) for a, b in zip(reference, candidate, strict=False)]
    if len(ratios) < FEWEST_STEPS:
        return Steadiness.UNSTEADY
    scattered = percentile(ratios, 0.75) - percentile(ratios, 0.25) > SCATTER
    return Steadiness.UNSTEADY if scattered or _drift(ratios) != 0 else Steadiness.STEADY


def _drift(logs: Sequence[float]) -> float:
    """How much higher the last third lies than the first; 0 when that is small, or may be chance."""
    third = len(logs) // 3
    first, last = logs[:third], logs[-third:]
    error = _MEDIAN_ERROR * math.sqrt((_spread(first) ** 2 + _spread(last) ** 2) / third)
    change = median(last) - median(first)
    return 0.0 if abs(change) <= max(math.log1p(DRIFT), CHANCE * error) else change


def percentile(values: Sequence[float], share: float) -> float:
    """The value at `share` of the sorted values, linear between neighbours (numpy's default method)."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def final_loss(rows: Sequence[StepRow]) -> float | None:
    """Mean loss of the last tenth of the steps, at least one; None when a loss is missing."""
    losses = [row.loss for row in rows[-max(1, len(rows) // 10) :]]
    finite = [loss for loss in losses if loss is not None]
    return sum(finite) / len(finite) if finite and len(finite) == len(losses) else None


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return _NORMAL_MAD * median(abs(value - middle) for value in values)
