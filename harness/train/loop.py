"""The training loop of the native stack. `measured_step` is what every published step time is the time of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

import torch
from torch import Tensor

from harness.backends.base import Engine
from harness.data.batch import Batch
from harness.plan import PlannedRun
from harness.train.comm import CollectiveCounter
from harness.train.facts import Collectives
from harness.train.host import busy_mhz
from harness.train.journal import Journal
from harness.train.memory import Peaks, read_peaks, reset_peaks
from harness.train.meter import Stopwatch
from harness.train.records import StepRow
from harness.train.schedule import learning_rate
from harness.train.step_watch import StepLap, StepWatch
from harness.train.turns import Baton, turn_of
from harness.train.world import World


class BatchSource(Protocol):
    def at(self, step: int, micro_step: int) -> Batch: ...


EXPLOSION = 1e3
"""A loss so many times the first one, or 1 if that is more, has exploded: no training comes back from there."""


class DivergedError(Exception):
    """The loss or the gradient norm is not finite, or the loss has exploded. All ranks see the same numbers and stop
    at the same step."""


def exploded(loss: float, first_loss: float) -> bool:
    return loss > EXPLOSION * max(1.0, first_loss)


class LossGuard:
    """Looks at every step's loss and gradient norm, the same numbers on all ranks."""

    def __init__(self) -> None:
        self._first: float | None = None

    def check(self, step: int, loss: float, norm: float = 0.0) -> None:
        """Raises DivergedError."""
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise DivergedError(f"step {step}: loss {loss}, gradient norm {norm}")
        self._first = loss if self._first is None else self._first
        if exploded(loss, self._first):
            raise DivergedError(f"step {step}: loss {loss:.3g}, from {self._first:.3g} at the first step")


@dataclass(frozen=True)
class LoopResult:
    """What only the process itself can know of its steps. Peaks and CPU time are of the steps after warm-up."""

    peaks: Peaks
    cpu_seconds_per_step: float | None
    collectives: list[Collectives] | None
    """Of the last warm-up step."""
    busy_cpu_mhz: float | None


def measured_step(engine: Engine, batches: list[Batch], rate: float, watch: StepWatch) -> tuple[Tensor, float, StepLap]:
    """One optimizer step, timed between two moments at which all ranks stand still together, device work done.

    Timed: forward and backward of every micro-batch, gradient reduction, clipping, update, clearing of gradients.
    Not timed: fetching the batches, which are on the device already, and everything done with what is returned.

    Returns:
        This rank's mean loss over its micro-batches (float32 scalar), the global gradient norm, the time.
    """
    watch.start()
    losses = [engine.backward(batch, last=number == len(batches)) for number, batch in enumerate(batches, 1)]
    norm = engine.step(rate)
    lap = watch.stop()
    return torch.stack(losses).mean(), norm, lap


@dataclass
class Steps:
    """The steps of a run as every stack makes them: what they are fed, what is kept of them, what follows them.

    Attributes:
        tokens_per_sample: see `VLA.tokens_per_sample`.
        checkpoint: called with the number of steps made when a checkpoint is due.
    """

    run: PlannedRun
    batches: BatchSource
    world: World
    journal: Journal
    tokens_per_sample: int
    checkpoint: Callable[[int], None]
    baton: Baton | None = None
    """Asked for at the first step of every turn; None in a run that has the machine to itself."""
    first: int = 0
    """The first step this process makes."""
    _turn: int | None = None
    _guard: LossGuard = field(default_factory=LossGuard)
    _cpu_seconds: list[float] = field(default_factory=list)
    _counter: CollectiveCounter | None = None

    def fetch(self, step: int) -> tuple[list[Batch], float]:
        """The micro-batches of a step, on the device, and the seconds that took."""
        watch = Stopwatch()
        batches = [self.batches.at(step, micro).to(self.world.device) for micro in range(self.run.cell.accumulation)]
        return batches, watch.stop().wall_seconds

    def begin(self, step: int) -> None:
        """To be called before anything is done for a step: waits for the turn it belongs to."""
        turn = turn_of(step - self.first, self.run)
        if self.baton is not None and turn != self._turn:
            self.baton.take()
            self._turn = turn
        if step - self.first == self.run.warmup_steps:
            reset_peaks(self.world.device)
        # Not the first step: it builds what the backends build on the way (DDP's buckets, ZeRO-3's order of layers).
        if 0 < step - self.first == self.run.warmup_steps - 1:
            self._counter = CollectiveCounter()
            self._counter.start()

    def finish(self, step: int, local_loss: Tensor, norm: float, lap: StepLap, data_seconds: float) -> None:
        """Writes the step down. Raises DivergedError.

        Args:
            local_loss: this rank's mean loss over its micro-batches, float32 scalar.
        """
        if self._counter is not None and step - self.first == self.run.warmup_steps - 1:
            self._counter.stop()
        cell, loss = self.run.cell, self.world.mean(local_loss)
        self.journal.add(
            StepRow(
                step=step,
                step_seconds=lap.wall_seconds,
                data_seconds=data_seconds,
                loss=loss if math.isfinite(loss) else None,
                gradient_norm=norm if math.isfinite(norm) else None,
                learning_rate=learning_rate(cell.optimizer, step, self.run.steps),
                samples=cell.samples_per_step,
                tokens=cell.samples_per_step * self.tokens_per_sample,
                turn=self._turn,
                forward_seconds=lap.phases.forward,
                backward_seconds=lap.phases.backward,
                optimizer_seconds=lap.phases.optimizer,
                joules=lap.joules,
                built=lap.compiled or step == self.first,
            )
        )
        self._guard.check(step, loss, norm)
        if step - self.first >= self.run.warmup_steps:
            self._cpu_seconds.append(lap.cpu_seconds)

    def checkpoint_due(self, done: int) -> bool:
        """Whether one belongs after the first `done` steps."""
        every = self.run.checkpoint_every
        return every is not None and (done % every == 0 or done == self.run.steps)

    def result(self) -> LoopResult:
        cpu_seconds = median(self._cpu_seconds) if self._cpu_seconds else None
        counted = self._counter.counted if self._counter else None
        return LoopResult(read_peaks(self.world.device), cpu_seconds, counted, busy_mhz())


def train(steps: Steps, engine: Engine) -> LoopResult:
    """Makes the steps from `steps.first` on, on the native stack. Raises DivergedError."""
    run, watch = steps.run, StepWatch(steps.world)
    engine.split(watch.phases)
    for step in range(steps.first, run.steps):
        steps.begin(step)
        batches, data_seconds = steps.fetch(step)
        rate = learning_rate(run.cell.optimizer, step, run.steps)
        loss, norm, lap = measured_step(engine, batches, rate, watch)
        steps.finish(step, loss, norm, lap, data_seconds)
        if steps.checkpoint_due(step + 1):
            steps.checkpoint(step + 1)
    return steps.result()
