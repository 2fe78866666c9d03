"""Every metric owns its unit, its direction, its tolerance, and how it is read from a run. One table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harness.suite import Gate
from harness.train.facts import ShardBytes
from harness.train.records import Memory, Outcome, RunRecord, Speed

MIB = 2**20


@dataclass(frozen=True)
class Metric:
    """A figure of one run.

    Attributes:
        better: which way is good.
        smallest_effect: relative change below which nobody cares; a suite's `[gate]` may say otherwise.
        floor: absolute change, in the metric's unit, below which nobody cares.
        gated: compared with baselines. Figures that follow from another metric are shown, not gated.
        read: the figure of a run that ended OK; None where the run does not have it.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    family: Literal["time", "memory", "checkpoint"]
    smallest_effect: float
    floor: float
    gated: bool
    read: Callable[[RunRecord], float | None]
    definition: str
    paired: bool = False
    """A run's figure over that of its partner of the suite's reference cell; a single run has none."""
    exact: bool = False
    """Like runs give the very same figure: a difference needs no test, one run is enough."""


def _of_speed(read: Callable[[Speed], float | None]) -> Callable[[RunRecord], float | None]:
    return lambda run: None if run.speed is None else read(run.speed)


def _of_memory(read: Callable[[Memory], float | None]) -> Callable[[RunRecord], float | None]:
    return lambda run: None if run.memory is None else read(run.memory)


def _of_pairs_only(_run: RunRecord) -> None:
    return None


def _largest_shard(read: Callable[[ShardBytes], int]) -> Callable[[RunRecord], float | None]:
    return _of_memory(lambda memory: max((read(shard) for shard in memory.shards), default=None))


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "step_ratio", "", "lower", "time", 0.03, 0.0, True,
            _of_pairs_only,
            "step time over that of the reference cell's run of the same repeat: what the machine does to both "
            "cancels, so that it is steadier than step time from night to night, and blind to what slows both",
            paired=True,
        ),
        Metric(
            "step_seconds", "s", "lower", "time", 0.03, 0.0, True,
            _of_speed(lambda speed: speed.step_seconds),
            "median over the measured steps of the slowest rank's time for one optimizer step; in turns, the geometric "
            "mean of each turn's median",
        ),
        Metric(
            "cpu_seconds", "s", "lower", "time", 0.03, 0.0, False,
            _of_speed(lambda speed: speed.cpu_seconds_per_step),
            "process CPU time of a step, all threads: median over the measured steps, largest rank",
        ),
        Metric(
            "samples_per_second", "samples/s", "higher", "time", 0.03, 0.0, False,
            _of_speed(lambda speed: speed.samples_per_second),
            "samples of all ranks over the slowest rank's time",
        ),
        Metric(
            "tokens_per_second", "tokens/s", "higher", "time", 0.03, 0.0, False,
            _of_speed(lambda speed: speed.tokens_per_second),
            "positions processed by all ranks over the slowest rank's time",
        ),
        Metric(
            "p95_step_seconds", "s", "lower", "time", 0.03, 0.0, False,
            _of_speed(lambda speed: speed.p95_step_seconds),
            "95th percentile of the measured steps, slowest rank",
        ),
        Metric(
            "p99_step_seconds", "s", "lower", "time", 0.03, 0.0, False,
            _of_speed(lambda speed: speed.p99_step_seconds),
            "99th percentile of the measured steps, slowest rank",
        ),
        Metric(
            "forward_seconds", "s", "lower", "time", 0.03, 0.0, False,
            _of_speed(lambda speed: speed.median_forward_seconds),
            "median over the measured steps of the busiest rank's forwards, communication inside included",
        ),
        Metric(
            "backward_seconds", "s", "lower", "time", 0.03, 0.0, False,
            _of_speed(lambda speed: speed.median_backward_seconds),
            "likewise, of its backwards",
        ),
        Metric(
            "optimizer_seconds", "s", "lower", "time", 0.03, 0.0, False,
            _of_speed(lambda speed: speed.median_optimizer_seconds),
            "likewise, of clipping, update and clearing",
        ),
        Metric(
            "skew_seconds", "s", "lower", "time", 0.15, 0.002, False,
            _of_speed(lambda speed: speed.median_skew_seconds),
            "median over the measured steps of how far apart the ranks were at the end of a phase, at most",
        ),
        Metric(
            "joules_per_sample", "J", "lower", "time", 0.03, 0.0, False,
            _of_speed(lambda speed: speed.joules_per_sample),
            "energy of all ranks' GPUs over the measured steps, by the driver's counter, over their samples",
        ),
        Metric(
            "data_seconds", "s", "lower", "time", 0.15, 0.002, False,
            _of_speed(lambda speed: speed.median_data_seconds),
            "median wait for the next batch; timed apart from the step",
        ),
        Metric(
            "peak_resident_bytes", "B", "lower", "memory", 0.01, 16 * MIB, True,
            _of_memory(lambda memory: memory.peak_resident_bytes),
            "high-water mark of the resident set after warm-up, maximum over ranks",
        ),
        Metric(
            "peak_allocated_bytes", "B", "lower", "memory", 0.01, 16 * MIB, True,
            _of_memory(lambda memory: memory.peak_allocated_bytes),
            "CUDA allocator's peak after warm-up, maximum over ranks",
        ),
        Metric(
            "parameter_bytes", "B", "lower", "memory", 0.01, 0.0, True,
            _largest_shard(lambda shard: shard.parameter_bytes),
            "parameter bytes held between steps, maximum over ranks", exact=True,
        ),
        Metric(
            "state_bytes", "B", "lower", "memory", 0.01, 0.0, False,
            _largest_shard(lambda shard: shard.parameter_bytes + shard.gradient_bytes + shard.optimizer_bytes),
            "parameter, gradient and optimizer bytes held between steps, maximum over ranks", exact=True,
        ),
        Metric(
            "checkpoint_save_seconds", "s", "lower", "checkpoint", 0.15, 0.05, True,
            lambda run: run.checkpoint_save_seconds,
            "time until every rank's part of a checkpoint is on disk",
        ),
        Metric(
            "checkpoint_load_seconds", "s", "lower", "checkpoint", 0.15, 0.05, True,
            lambda run: run.checkpoint_load_seconds,
            "time from the start of loading until training can go on",
        ),
        Metric(
            "checkpoint_bytes", "B", "lower", "checkpoint", 0.01, 0.0, True,
            lambda run: run.checkpoint_bytes,
            "size of a complete checkpoint, all ranks", exact=True,
        ),
    )
}  # fmt: skip


def read(metric: Metric, runs: list[RunRecord]) -> list[float]:
    """Raw figures of the runs that ended OK and have one; a missing figure is left out, never 0."""
    figures = (metric.read(run) for run in runs if run.outcome is Outcome.OK)
    return [float(figure) for figure in figures if figure is not None]


def noise_correlation(metric: Metric) -> float:
    """How much of the run-to-run noise two cells of one block have in common, at worst.

    All of it in step times, which the machine's state moves together; half in ratios, which share the reference's
    noise; and so it is taken to be in memory.
    """
    return 0.5 if metric.paired or metric.family == "memory" else 1.0


def smallest_effect(metric: Metric, gate: Gate) -> float:
    """The relative change that matters: the suite's for step time and memory, else the table's."""
    if metric.family == "time":
        return gate.smallest_effect.step_seconds
    return gate.smallest_effect.peak_bytes if metric.family == "memory" else metric.smallest_effect
