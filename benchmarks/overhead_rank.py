"""A rank of `overhead.py`: the harness's own worker, and the barest loop on the very engine it trains, in turns.

The harness's turns and the bare ones follow each other as H B B H, so that a steady drift of the machine cancels: at
every second boundary between two turns of the harness two bare ones are made. Both kinds begin with all ranks together,
and their clock runs to the last thing done.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.processes import die_with_parent, parent_from_environment

if __name__ == "__main__":
    die_with_parent(parent_from_environment())

import torch
from overhead import BARE

from harness.backends import build_engine
from harness.train import loop, worker
from harness.train.step_watch import StepLap, StepWatch


class Clock:
    """Wall and process CPU seconds of turns."""

    def __init__(self) -> None:
        self.notes: list[tuple[float, float]] = []
        self._began: tuple[float, float] | None = None

    def start(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        if self._began is not None:
            wall, cpu = self._began
            self.notes.append((time.perf_counter() - wall, time.process_time() - cpu))
            self._began = None


class Turns:
    """In a baton's place: asked at the beginning of each of the harness's turns, it makes the bare ones that are due.

    Attributes:
        engine: what trains; set when it has been built.
        steps: the run's; set when it has been made.
        own_cpu_seconds: spent in what the harness does around a step.
    """

    engine: Any
    steps: loop.Steps

    def __init__(self) -> None:
        self.ours, self.bare = Clock(), Clock()
        self.own_cpu_seconds = 0.0
        self.measuring = False
        self._taken = 0

    def take(self) -> None:
        self.ours.stop()
        if self._taken == 1:
            self._make_a_bare_turn()  # its warm-up
            keep_collections_short()
        elif self._taken and self._taken % 2 == 0:
            self._make_a_bare_turn()
            self._make_a_bare_turn()
        self.measuring = self._taken > 0
        self._taken += 1
        self.steps.world.synchronise()
        self.ours.start()

    def end(self) -> None:
        """Makes the bare turns that belong to the last ones of the harness, and writes down what was noted."""
        self.ours.stop()
        while len(self.bare.notes) < len(self.ours.notes):
            self._make_a_bare_turn()
        noted = {"harness": self.ours.notes, "bare": self.bare.notes, "own_cpu_seconds": self.own_cpu_seconds}
        Path(sys.argv[1]).with_name(f"rank-{os.environ['RANK']}.turns.json").write_text(json.dumps(noted))

    def _make_a_bare_turn(self) -> None:
        """Forward, backward, clip, step, clear. Nothing is synchronised within, noted, or looked at."""
        self.steps.world.synchronise()
        self.bare.start()
        bare_steps(self.steps, self.engine, len(self.bare.notes))
        self.bare.stop()


def keep_collections_short() -> None:
    """What is there by now is looked at by no later collection of garbage. A full one took 0.4 s under FSDP2, once in
    some hundred steps, and always fell into the same turn."""
    gc.collect()
    gc.freeze()


def bare_steps(steps: loop.Steps, engine: Any, turn: int) -> None:
    """One turn's."""
    cell, count = steps.run.cell, steps.run.turn_steps or 1
    one_step = deepspeed_step if cell.backend.backend == "deepspeed" else torch_step
    for step in range(turn * count, (turn + 1) * count):
        one_step(engine, steps.batches.at(step, 0), cell.clip)


def torch_step(engine: Any, batch: Any, clip: float) -> None:
    engine.net(batch).backward()
    own = getattr(engine.net, "clip_grad_norm_", None)  # FSDP1's flat shards have their own
    own(clip) if own else torch.nn.utils.clip_grad_norm_(engine.net.parameters(), clip)
    engine.optimizer.step()
    engine.optimizer.zero_grad(set_to_none=True)


def deepspeed_step(engine: Any, batch: Any, _clip: float) -> None:
    engine.net.backward(engine.net(batch))
    engine.net.step()


TURNS = Turns()


@contextmanager
def accounted() -> Iterator[None]:
    """CPU time inside counts as the harness's own once the measured steps have begun (what ends warm-up is once)."""
    cpu = time.process_time()
    yield
    if TURNS.measuring:
        TURNS.own_cpu_seconds += time.process_time() - cpu


class AccountedSteps(loop.Steps):
    """The harness's steps, with the CPU time of what it does around them."""

    def begin(self, step: int) -> None:
        if self.baton is None:
            self.baton, TURNS.steps = TURNS, self  # type: ignore[assignment]
        super().begin(step)

    def finish(self, *step: Any) -> None:
        with accounted():
            super().finish(*step)


class AccountedWatch(StepWatch):
    """Likewise at the two ends of a step, barriers included: the bare loop has none."""

    def start(self) -> None:
        with accounted():
            super().start()

    def stop(self) -> StepLap:
        with accounted():
            return super().stop()


def build_and_keep(*arguments: Any) -> Any:
    TURNS.engine = build_engine(*arguments)
    return TURNS.engine


def train_in_turns(steps: loop.Steps, engine: Any) -> loop.LoopResult:
    """`loop.train`; or, where the bare loop is held against itself, its turns in the harness's place."""
    if not steps.run.cell.label.endswith(BARE):
        result = loop.train(steps, engine)
        TURNS.end()
        return result
    return train_bare(steps, engine)


def train_bare(steps: loop.Steps, engine: Any) -> loop.LoopResult:
    """The warm-up as ever, since the report of the run is made of it; then bare turns in both places."""
    run = steps.run
    steps.run = run.model_copy(update={"steps": run.warmup_steps})
    result = loop.train(steps, engine)
    steps.run = run
    for turn in range((run.steps - run.warmup_steps) // (run.turn_steps or 1)):
        TURNS.take()
        bare_steps(steps, engine, turn)
    TURNS.end()
    return result


def main() -> None:
    worker.Steps = AccountedSteps  # type: ignore[misc]
    worker.build_engine = build_and_keep
    worker.train = train_in_turns
    loop.StepWatch = AccountedWatch  # type: ignore[misc]
    worker.main()


if __name__ == "__main__":
    main()
