"""What the harness costs: its worker against the barest loop of the same backend and model, in turns.

    python benchmarks/overhead.py                      # every native backend: 23 minutes on 2 fast idle cores
    python benchmarks/overhead.py --backends ddp,zero3 --groups 12
    python benchmarks/overhead.py --keep overhead.jsonl         # may be stopped, and goes on from there
    python benchmarks/overhead.py --backends ddp --control      # the bare loop against itself: how well this tells

Prints, for every backend, the ratio of wall time (harness over bare) with its 95 % interval, the same of CPU time, and
the CPU time of the harness itself as a share of a step's. Exits with 1 when a bound is broken: the interval's upper end
above 1.03 at steps of 100 ms or more, or a share above 1 %.

Both loops train the same engine in the same processes, a few steps each in turn, so that nothing but the loop differs.
Every backend gets several fresh process groups; each gives one ratio, of the geometric means of its turns. The figure
is their mean, its interval Student's t. On a virtual machine the ratio of two neighbouring turns scatters by 5 to 10 %:
a cost of 1 % shows only over a hundred of them.
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
from harness.records import Value
from harness.statistics.interval import Interval
from harness.statistics.ratios import paired_ratio
from harness.store import append_line, read_lines
from harness.train.launch import launch
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
"""A cell whose label ends so runs the barest loop in both places."""


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


class Group(Value):
    """What one process group noted. A rank's turns are (wall, CPU) seconds; the first of each loop is its warm-up."""

    backend: str
    ours: list[list[tuple[float, float]]]
    bare: list[list[tuple[float, float]]]
    own_cpu_seconds: float
    """Of all ranks, around the harness's steps."""
    launcher_cpu_seconds: float


def measure(backend: str, options: argparse.Namespace, folder: Path) -> Group:
    """Runs the two loops in turns. Raises SystemExit when the run does not end well."""
    order, launcher = spec(backend, options, folder), CpuBetweenSteps()
    record = launch(order, fingerprint(), hang_seconds=300.0, on_step=launcher.step_made, worker="overhead_rank")
    if record.outcome is not Outcome.OK:
        raise SystemExit(f"{order.run.key}: {record.outcome}: {record.failure and record.failure.reason}")
    ranks = [json.loads(file.read_text()) for file in sorted(Path(order.folder).glob("rank-*.turns.json"))]
    return Group(
        backend=backend,
        ours=[rank["harness"] for rank in ranks],
        bare=[rank["bare"] for rank in ranks],
        own_cpu_seconds=sum(rank["own_cpu_seconds"] for rank in ranks),
        launcher_cpu_seconds=launcher.seconds,
    )


class CpuBetweenSteps:
    """CPU time of this process, the launcher, from the first step that it hears of to the last."""

    def __init__(self) -> None:
        self._first: float | None = None
        self.seconds = 0.0

    def step_made(self, _row: StepRow) -> None:
        now = time.process_time()
        self._first = now if self._first is None else self._first
        self.seconds = now - self._first


def cost(groups: list[Group], turn_steps: int) -> Cost:
    """The launcher's time counts whole, though half of it passes while bare turns are made."""
    figures = {
        name: paired_ratio(
            [geometric_mean(_slowest(group.bare, place)) for group in groups],
            [geometric_mean(_slowest(group.ours, place)) for group in groups],
        )
        for place, name in ((0, "wall"), (1, "cpu"))
    }
    cpu = sum(seconds for group in groups for rank in group.ours for _, seconds in rank[1:])
    own = sum(group.own_cpu_seconds + group.launcher_cpu_seconds for group in groups)
    step_seconds = median(seconds for group in groups for seconds in _slowest(group.bare, 0)) / turn_steps
    return Cost(step_seconds, figures["wall"], figures["cpu"], own / cpu)


def _slowest(ranks: list[list[tuple[float, float]]], place: int) -> list[float]:
    turns = zip(*(rank[1:] for rank in ranks), strict=True)
    return [max(note[place] for note in notes) for notes in turns]


def spec(backend: str, options: argparse.Namespace, folder: Path) -> RunSpec:
    cell = Cell.model_validate(
        {
            "label": f"{backend}-{BARE if options.control else 'harness'}",
            "model": "pi0",
            "size": options.size,
            "ranks": options.ranks,
            "micro_batch": options.micro_batch,
            "backend": BACKENDS[backend],
            "data": {"source": "synthetic"},
        }
    )
    run = PlannedRun(
        cell=cell, kind=RunKind.TIMING, repeat=0, training_seed=7, warmup_steps=WARMUP_STEPS,
        steps=WARMUP_STEPS + options.rounds * options.turn_steps, turn_steps=options.turn_steps,
    )  # fmt: skip
    return RunSpec(run=run, attempt=1, seed=7, folder=str(folder / run.key), data_folder=None, resume_from=None)


def shown(interval: Interval) -> str:
    return f"{interval.estimate:.3f} [{interval.low or math.nan:.3f}, {interval.high or math.nan:.3f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--groups", type=int, default=8, help="fresh process groups of each backend")
    parser.add_argument("--rounds", type=int, default=24, help="turns of each loop in a group")
    parser.add_argument("--turn-steps", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batch", type=int, default=16, help="the bounds are for steps of 100 ms")
    parser.add_argument("--size", default="micro")
    parser.add_argument("--keep", type=Path, help="a file for what the groups noted; those in it are not made again")
    parser.add_argument("--control", action="store_true", help="the bare loop in both places")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory(prefix="harness-overhead-") as folder:
        groups = all_groups(options, options.keep or Path(folder) / "groups.jsonl", Path(folder))
    print("| backend | bare step ms | wall ratio | CPU ratio | own CPU % | bounds |\n|---|---|---|---|---|---|")
    failed = False
    for backend in options.backends.split(","):
        found = cost([group for group in groups if group.backend == backend], options.turn_steps)
        broken = found.broken()
        failed = failed or bool(broken)
        print(
            f"| {backend} | {found.step_seconds * 1e3:.0f} | {shown(found.wall)} | {shown(found.cpu)} | "
            f"{found.own_cpu_share:.2%} | {'; '.join(broken) or 'kept'} |"
        )
    return int(failed)


def all_groups(options: argparse.Namespace, file: Path, folder: Path) -> list[Group]:
    """Backends in rotation, so that a slow hour weighs on all alike; each group is in the file as soon as it ends."""
    for number in range(options.groups):
        for backend in options.backends.split(","):
            done = [group for group in kept(file) if group.backend == backend]
            if len(done) <= number:
                group = measure(backend, options, folder / f"{number}-{backend}")
                append_line(file, group.model_dump_json())
                wall, cpu = (
                    geometric_mean(_slowest(group.ours, place)) / geometric_mean(_slowest(group.bare, place))
                    for place in (0, 1)
                )
                print(f"{number + 1}/{options.groups} {backend}: wall {wall:.3f}, CPU {cpu:.3f}", flush=True)
    return kept(file)


def kept(file: Path) -> list[Group]:
    return read_lines(file, Group) if file.exists() else []


if __name__ == "__main__":
    raise SystemExit(main())
