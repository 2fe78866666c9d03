"""The training loop of the native stack. `measured_step` is what every published step time is the time of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import torch
from torch import Tensor

from harness.backends.base import Engine
from harness.data.batch import Batch
from harness.plan import PlannedRun
from harness.train.journal import Journal
from harness.train.memory import Peaks, read_peaks, reset_peaks
from harness.train.meter import Lap, Stopwatch
from harness.train.records import StepRow
from harness.train.schedule import learning_rate
from harness.train.world import World


class BatchSource(Protocol):
    def at(self, step: int, micro_step: int) -> Batch: ...


class DivergedError(Exception):
    """The loss or the gradient norm is not finite. All ranks see the same numbers and stop at the same step."""


@dataclass(frozen=True)
class LoopResult:
    """What only the process itself can know of its steps. Peaks and CPU time are of the steps after warm-up."""

    peaks: Peaks
    cpu_seconds_per_step: float | None


def measured_step(
    engine: Engine, batches: list[Batch], rate: float, world: World, watch: Stopwatch
) -> tuple[Tensor, float, Lap]:
    """One optimizer step, timed between two moments at which all ranks stand still together.

    Timed: forward and backward of every micro-batch, gradient reduction, clipping, update, clearing of gradients.
    Not timed: fetching the batches, which are on the device already, and everything done with what is returned.

    Returns:
        This rank's mean loss over its micro-batches (float32 scalar), the global gradient norm, the time.
    """
    world.synchronise()
    watch.start()
    losses = [engine.backward(batch, last=number == len(batches)) for number, batch in enumerate(batches, 1)]
    norm = engine.step(rate)
    world.synchronise()
    lap = watch.stop()
    return torch.stack(losses).mean(), norm, lap


@dataclass(frozen=True)
class Loop:
    """What a run's steps need.

    Attributes:
        tokens_per_sample: see `VLA.tokens_per_sample`.
        checkpoint: called with the number of steps made when a checkpoint is due.
    """

    run: PlannedRun
    engine: Engine
    batches: BatchSource
    world: World
    journal: Journal
    tokens_per_sample: int
    checkpoint: Callable[[int], None]

    def steps(self, first: int) -> LoopResult:
        """Makes the steps from `first` on. Raises DivergedError."""
        every, cpu_seconds = self.run.checkpoint_every, []
        for step in range(first, self.run.steps):
            if step - first == self.run.warmup_steps:
                reset_peaks(self.world.device)
            lap = self._step(step)
            if step - first >= self.run.warmup_steps:
                cpu_seconds.append(lap.cpu_seconds)
            done = step + 1
            if every is not None and (done % every == 0 or done == self.run.steps):
                self.checkpoint(done)
        return LoopResult(read_peaks(self.world.device), median(cpu_seconds) if cpu_seconds else None)

    def _step(self, step: int) -> Lap:
        cell, watch = self.run.cell, Stopwatch()
        batches = [self.batches.at(step, micro).to(self.world.device) for micro in range(cell.accumulation)]
        data_seconds = watch.stop().wall_seconds
        rate = learning_rate(cell.optimizer, step, self.run.steps)
        local_loss, norm, lap = measured_step(self.engine, batches, rate, self.world, watch)
        loss = self.world.mean(local_loss)
        self.journal.add(
            StepRow(
                step=step,
                step_seconds=lap.wall_seconds,
                data_seconds=data_seconds,
                loss=loss if math.isfinite(loss) else None,
                gradient_norm=norm if math.isfinite(norm) else None,
                learning_rate=rate,
                samples=cell.samples_per_step,
                tokens=cell.samples_per_step * self.tokens_per_sample,
            )
        )
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise DivergedError(f"step {step}: loss {loss}, gradient norm {norm}")
        return lap
