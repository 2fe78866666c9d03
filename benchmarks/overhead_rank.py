"""A rank of `overhead.py`: the harness's own worker, or the barest loop that trains the same model the same way.

Which of the two is in the cell's label. Both take turns, and both note what a turn cost them: the clock runs from the
moment the baton comes to the moment the next one is asked for, so it holds everything a step of either loop does.
"""

from __future__ import annotations

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
from harness.data.dataset import Batches, open_dataset
from harness.models import build, input_shape
from harness.plan import PlannedRun
from harness.store import read_record
from harness.train import loop, worker
from harness.train.records import RunSpec
from harness.train.step_watch import StepLap, StepWatch
from harness.train.turns import Baton, turn_of
from harness.train.world import joined


class TimedBaton(Baton):
    """Notes wall and process CPU seconds of every turn in `rank-<r>.turns.json` of the attempt's folder."""

    notes: list[tuple[float, float]] = []
    own_cpu_seconds = 0.0
    """Spent in what the harness does around a step."""

    def take(self) -> None:
        self.stop()
        super().take()
        self._began = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        if hasattr(self, "_began"):
            wall, cpu = self._began
            self.notes.append((time.perf_counter() - wall, time.process_time() - cpu))

    def write(self, folder: str) -> None:
        self.stop()
        noted = {"turns": self.notes, "own_cpu_seconds": self.own_cpu_seconds}
        (Path(folder) / f"rank-{os.environ['RANK']}.turns.json").write_text(json.dumps(noted))


@contextmanager
def accounted() -> Iterator[None]:
    """CPU time inside counts as the harness's own once the measured steps have begun (what ends warm-up is once)."""
    cpu = time.process_time()
    yield
    if AccountedSteps.measuring:
        TimedBaton.own_cpu_seconds += time.process_time() - cpu


class AccountedSteps(loop.Steps):
    """The harness's steps, with the CPU time of what it does around them."""

    measuring = False

    def begin(self, step: int) -> None:
        with accounted():
            super().begin(step)
        AccountedSteps.measuring = step - self.first >= self.run.warmup_steps

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


def harness_loop(spec: RunSpec) -> None:
    batons: list[TimedBaton] = []

    def baton(address: str) -> TimedBaton:
        batons.append(TimedBaton(address))
        return batons[-1]

    worker.Baton = baton  # type: ignore[assignment,misc]
    worker.Steps = AccountedSteps  # type: ignore[misc]
    loop.StepWatch = AccountedWatch  # type: ignore[misc]
    worker.main()
    batons[0].write(spec.folder)


def bare_loop(spec: RunSpec) -> None:
    """Forward, backward, clip, step, clear. Nothing is synchronised, noted, or looked at."""
    run, cell = spec.run, spec.run.cell
    with joined(spec.collective_timeout_seconds) as world:
        torch.manual_seed(spec.seed)
        engine: Any = build_engine(build(cell.model, cell.size), cell, world.device)
        dataset = open_dataset(cell.data, None, input_shape(cell.model, cell.size))
        batches = Batches(dataset, spec.seed, world.rank, world.ranks, cell.micro_batch, cell.accumulation)
        baton, turn = TimedBaton(str(spec.baton)), None
        one_step = deepspeed_step if cell.backend.backend == "deepspeed" else torch_step
        for step in range(run.steps):
            if turn != (due := turn_of(step, run)):
                baton.take()
                turn = due
            one_step(engine, batches.at(step, 0), cell.clip)
        baton.write(spec.folder)


def torch_step(engine: Any, batch: Any, clip: float) -> None:
    engine.net(batch).backward()
    own = getattr(engine.net, "clip_grad_norm_", None)  # FSDP1's flat shards have their own
    own(clip) if own else torch.nn.utils.clip_grad_norm_(engine.net.parameters(), clip)
    engine.optimizer.step()
    engine.optimizer.zero_grad(set_to_none=True)


def deepspeed_step(engine: Any, batch: Any, _clip: float) -> None:
    engine.net.backward(engine.net(batch))
    engine.net.step()


def main() -> None:
    spec = read_record(Path(sys.argv[1]), RunSpec)
    (bare_loop if is_bare(spec.run) else harness_loop)(spec)


def is_bare(run: PlannedRun) -> bool:
    return run.cell.label.endswith(BARE)


if __name__ == "__main__":
    main()
