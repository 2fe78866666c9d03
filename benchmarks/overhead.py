"""What the harness costs: its worker against the barest loop of the same backend and model, in turns.

    python benchmarks/overhead.py                      # every native backend, an estimated 40 minutes on 2 idle cores
    python benchmarks/overhead.py --backends ddp,zero3 --pairs 12

Prints, for every backend, the ratio of wall time (harness over bare) with its 95 % interval, the same of CPU time, and
the CPU time of the harness itself as a share of a step's. Exits with 1 when a bound is broken: the interval's upper end
above 1.03 at steps of 100 ms or more, or a share above 1 %.

Every backend gets several fresh pairs of process groups, since two groups of the very same loop differ by one or two
per cent for as long as they live. Within a pair the loops take turns, and the next round comes in opposite order. A
pair gives one ratio, of the geometric means of its turns; the figure is their mean, its interval Student's t.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from harness.machine import fingerprint
from harness.plan import Cell, PlannedRun, RunKind
from harness.statistics.interval import Interval
from harness.statistics.ratios import paired_ratio
from harness.train.launch import launch_in_turns
from harness.train.records import Outcome, RunSpec, StepRow

BACKENDS: dict[str, dict[str, Any]] = {
    "ddp": {"backend": "ddp"},
    "fsdp": {"backend": "fsdp"},
    "fsdp2": {"backend": "fsdp2"},
    "zero1": {"backend": "deepspeed", "zero_stage": 1},
    "zero2": {"backend": "deepspeed", "zero_stage": 2},
    "zero3": {"backend": "deepspeed", "zero_stage": 3},
}
LARGEST_RATIO, LARGEST_SHARE, SHORTEST_STEP_SECONDS = 1.03, 0.01, 0.1
WARMUP_STEPS = 5
BARE = "bare"
"""A cell whose label ends so runs the barest loop."""


@dataclass(frozen=True)
class Cost:
    """What the harness costs under one backend."""

    step_seconds: float
    """Of the bare loop: median over turns, slowest rank."""
    wall: Interval
    cpu: Interval
    own_cpu_share: float
    """CPU time of the harness around the steps, in ranks and launcher, over CPU time of the steps."""

    def broken(self) -> list[str]:
        bounds = []
        high = self.wall.high
        if self.step_seconds >= SHORTEST_STEP_SECONDS and (high is None or high > LARGEST_RATIO):
            bounds.append(f"wall ratio's upper end above {LARGEST_RATIO}")
        if self.own_cpu_share > LARGEST_SHARE:
            bounds.append(f"own CPU above {LARGEST_SHARE:.0%}")
        return bounds


@dataclass(frozen=True)
class Pair:
    """What one pair of process groups noted: by rank, and for the launcher that followed them."""

    harness: list[dict[str, Any]]
    bare: list[dict[str, Any]]
    launcher_cpu_seconds: float


def measure(backend: str, options: argparse.Namespace, folder: Path) -> Pair:
    """Runs the two loops in turns. Raises SystemExit when one of them does not end well."""
    specs = [spec(backend, name, options, folder) for name in ("harness", BARE)]
    launcher = CpuBetweenSteps()
    records = launch_in_turns(
        specs, fingerprint(), hang_seconds=300.0, on_step=launcher.step_made, worker="overhead_rank"
    )
    turns = []
    for order, record in zip(specs, records, strict=True):
        expected = Outcome.CRASHED if order.run.cell.label.endswith(BARE) else Outcome.OK  # a bare rank reports nothing
        files = sorted(Path(order.folder).glob("rank-*.turns.json"))
        if record.outcome is not expected or len(files) != options.ranks:
            raise SystemExit(f"{order.run.key}: {record.outcome}: {record.failure and record.failure.reason}")
        turns.append([json.loads(file.read_text()) for file in files])
    return Pair(turns[0], turns[1], launcher.seconds)


class CpuBetweenSteps:
    """CPU time of this process, the launcher, from the first step that it hears of to the last."""

    def __init__(self) -> None:
        self._first: float | None = None
        self.seconds = 0.0

    def step_made(self, _place: int, _row: StepRow) -> None:
        now = time.process_time()
        self._first = now if self._first is None else self._first
        self.seconds = now - self._first


def cost(pairs: list[Pair], turn_steps: int) -> Cost:
    """The first turn of a process is its warm-up and left out of everything.

    The launcher follows both groups all the time, a run alone has it to itself: half of its time counts.
    """
    figures = {
        name: paired_ratio(
            [geometric_mean(_slowest(pair.bare, place)) for pair in pairs],
            [geometric_mean(_slowest(pair.harness, place)) for pair in pairs],
        )
        for place, name in ((0, "wall"), (1, "cpu"))
    }
    ranks = [rank for pair in pairs for rank in pair.harness]
    cpu = sum(seconds for rank in ranks for _, seconds in rank["turns"][1:])
    own = sum(rank["own_cpu_seconds"] for rank in ranks) + sum(pair.launcher_cpu_seconds for pair in pairs) / 2
    step_seconds = median(seconds for pair in pairs for seconds in _slowest(pair.bare, 0)) / turn_steps
    return Cost(step_seconds, figures["wall"], figures["cpu"], own / cpu)


def _slowest(ranks: list[dict[str, Any]], place: int) -> list[float]:
    turns = zip(*(rank["turns"][1:] for rank in ranks), strict=True)
    return [max(note[place] for note in notes) for notes in turns]


def spec(backend: str, loop: str, options: argparse.Namespace, folder: Path) -> RunSpec:
    cell = Cell.model_validate(
        {
            "label": f"{backend}-{loop}",
            "model": "pi0",
            "size": options.size,
            "ranks": options.ranks,
            "micro_batch": options.micro_batch,
            "backend": BACKENDS[backend],
            "data": {"source": "synthetic"},
        }
    )
    run = PlannedRun(
        cell=cell, kind=RunKind.TIMING, repeat=0, training_seed=7, warmup_steps=WARMUP_STEPS, block=backend,
        steps=WARMUP_STEPS + options.rounds * options.turn_steps, turn_steps=options.turn_steps,
    )  # fmt: skip
    return RunSpec(run=run, attempt=1, seed=7, folder=str(folder / run.key), data_folder=None, resume_from=None)


def shown(interval: Interval) -> str:
    return f"{interval.estimate:.3f} [{interval.low or math.nan:.3f}, {interval.high or math.nan:.3f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--pairs", type=int, default=8, help="of fresh process groups for each backend")
    parser.add_argument("--rounds", type=int, default=16, help="turns of each loop in a pair")
    parser.add_argument("--turn-steps", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--size", default="micro")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    print("| backend | bare step ms | wall ratio | CPU ratio | own CPU % | bounds |\n|---|---|---|---|---|---|")
    failed = False
    with tempfile.TemporaryDirectory(prefix="harness-overhead-") as folder:
        for backend in options.backends.split(","):
            pairs = [measure(backend, options, Path(folder) / str(pair)) for pair in range(options.pairs)]
            found = cost(pairs, options.turn_steps)
            broken = found.broken()
            failed = failed or bool(broken)
            print(
                f"| {backend} | {found.step_seconds * 1e3:.0f} | {shown(found.wall)} | {shown(found.cpu)} | "
                f"{found.own_cpu_share:.2%} | {'; '.join(broken) or 'kept'} |",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
