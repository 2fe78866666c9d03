"""A/A: the same cell against itself, in turns and in ABBA order, with and without a planted background load.

    python benchmarks/turns_aa.py results/aa.jsonl --loads loaded   # 20 pairs in turns and 20 in ABBA: 20 to 25 minutes
    python benchmarks/turns_aa.py results/aa.jsonl                  # and as many on a quiet machine: twice that
    python benchmarks/turns_aa.py results/aa.jsonl --report         # only the tables, from what is there

Every difference it finds is false. Each pair is two fresh process groups; its figure is the log ratio of their step
times, as in a real comparison. Pairs are appended to the file as they end, so the script may be stopped and
started again; kinds are made in rotation, so that a slow hour weighs on all alike. A pair takes about half a minute on
2 idle cores at the default settings.

The tables: how pairs scatter, and what a comparison of all of them would say; and, by drawing `k` pairs at a time from
the real ones (none twice, each with a random sign, since which run is called the first is arbitrary), how wide the 95 %
interval of a comparison of `k` repeats is and how often it excludes 1: a false verdict.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import fmean, median, stdev

import numpy as np
from scipy import stats

from harness.machine import fingerprint
from harness.plan import Cell, PlannedRun, RunKind
from harness.records import Value
from harness.store import append_line, read_lines
from harness.train.launch import launch, launch_in_turns
from harness.train.meter import paired_steadiness
from harness.train.records import Outcome, RunRecord, RunSpec

ORDERS, LOADS = ("turns", "abba"), ("quiet", "loaded")
BURST_SECONDS, PAUSE_SECONDS = 3.0, 4.0
"""Mean lengths (exponential) of what the planted load does; it works on one core at a time."""
WARMUP_STEPS, HANG_SECONDS = 5, 300.0
CONFIDENCE = 0.95
DRAWS = 20_000


class Pair(Value):
    """Two fresh process groups of one cell."""

    order: str
    load: str
    log_ratio: float
    """Of the figures that the runs contribute to a comparison (`Speed.step_seconds`)."""
    median_log_ratio: float
    """Of the medians of all steps."""
    cpu_log_ratio: float
    """The same of process CPU time per step."""
    steady: bool
    """By the rule of a real comparison."""
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--pairs", type=int, default=20, help="of each kind")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--backend", default="ddp")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--turn-steps", type=int, default=2)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--size", default="micro")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if not options.report:
        measure(options)
    report(read_lines(options.file, Pair))


def measure(options: argparse.Namespace) -> None:
    """Makes the pairs that are not in the file yet."""
    kinds = [(order, load) for load in options.loads for order in ORDERS]
    for number in range(options.pairs):
        for order, load in kinds:
            done = [pair for pair in read_lines(options.file, Pair) if (pair.order, pair.load) == (order, load)]
            if len(done) <= number:
                pair = make_pair(order, load, number, options)
                append_line(options.file, pair.model_dump_json())
                print(f"{number + 1}/{options.pairs} {order} {load}: ratio {math.exp(pair.log_ratio):.3f}", flush=True)


def make_pair(order: str, load: str, number: int, options: argparse.Namespace) -> Pair:
    """Raises SystemExit when a run does not end well."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="harness-aa-") as folder, background(load == "loaded", seed=number):
        specs = [spec(name, order, Path(folder), options) for name in ("a", "b")]
        specs = specs[:: -1 if number % 2 else 1]
        records = run(specs, order)
    by_label = {record.run.cell.label: record.speed for record in records if record.outcome is Outcome.OK}
    a, b = by_label.get("aa-a"), by_label.get("aa-b")
    if a is None or b is None:
        raise SystemExit("\n".join(f"{r.run.key}: {r.outcome} {r.failure and r.failure.reason}" for r in records))
    if order == "turns":
        steady = paired_steadiness(a.turn_step_seconds, b.turn_step_seconds) == "STEADY"
    else:
        steady = a.steadiness == b.steadiness == "STEADY"
    return Pair(
        order=order,
        load=load,
        log_ratio=math.log(b.step_seconds / a.step_seconds),
        median_log_ratio=math.log(b.median_step_seconds / a.median_step_seconds),
        cpu_log_ratio=math.log(b.cpu_seconds_per_step / a.cpu_seconds_per_step),
        steady=steady,
        seconds=time.monotonic() - started,
    )


def run(specs: list[RunSpec], order: str) -> list[RunRecord]:
    machine = fingerprint()
    if order == "turns":
        return launch_in_turns(specs, machine, hang_seconds=HANG_SECONDS, on_step=lambda _place, _row: None)
    return [launch(each, machine, hang_seconds=HANG_SECONDS, on_step=lambda _row: None) for each in specs]


def spec(name: str, order: str, folder: Path, options: argparse.Namespace) -> RunSpec:
    stages = {f"zero{stage}": {"backend": "deepspeed", "zero_stage": stage} for stage in (1, 2, 3)}
    cell = Cell.model_validate(
        {
            "label": f"aa-{name}",
            "model": "pi0",
            "size": options.size,
            "micro_batch": options.micro_batch,
            "backend": stages.get(options.backend, {"backend": options.backend}),
            "data": {"source": "synthetic"},
        }
    )
    run = PlannedRun(
        cell=cell,
        kind=RunKind.TIMING,
        repeat=0,
        training_seed=7,
        steps=WARMUP_STEPS + options.steps,
        warmup_steps=WARMUP_STEPS,
        block="aa" if order == "turns" else None,
        turn_steps=options.turn_steps if order == "turns" else None,
    )
    return RunSpec(run=run, attempt=1, seed=7, folder=str(folder / name), data_folder=None, resume_from=None)


@contextmanager
def background(wanted: bool, seed: int) -> Iterator[None]:
    """Bursts of work on another core's worth of time, at random moments, for as long as the body runs."""
    process = multiprocessing.Process(target=_burst, args=(seed,), daemon=True)
    if wanted:
        process.start()
    try:
        yield
    finally:
        if wanted:
            process.kill()
            process.join()


def _burst(seed: int) -> None:
    generator = random.Random(seed)
    while True:
        until = time.monotonic() + generator.expovariate(1 / BURST_SECONDS)
        for _ in count():
            if time.monotonic() > until:
                break
        time.sleep(generator.expovariate(1 / PAUSE_SECONDS))


def report(pairs: list[Pair]) -> None:
    print("| order | load | pairs | steady | s a pair | scatter (SD of log ratio) | of medians | worst | CPU scatter |")
    print("|---|---|---|---|---|---|---|---|---|")
    kinds = [(order, load) for load in LOADS for order in ORDERS]
    of_kind = {kind: [pair for pair in pairs if (pair.order, pair.load) == kind] for kind in kinds}
    shown = [(kind, mine) for kind, mine in of_kind.items() if len(mine) > 1]
    for (order, load), mine in shown:
        ratios = [pair.log_ratio for pair in mine]
        figures = [
            stdev(ratios),
            stdev(pair.median_log_ratio for pair in mine),
            math.exp(max(map(abs, ratios))),
            stdev(pair.cpu_log_ratio for pair in mine),
        ]
        steady, seconds = sum(pair.steady for pair in mine), median(pair.seconds for pair in mine)
        numbers = " | ".join(f"{figure:.3f}" for figure in figures)
        print(f"| {order} | {load} | {len(mine)} | {steady} | {seconds:.0f} | {numbers} |")
    print("\n| order | load | repeats | 95 % interval | high/low | false verdicts |\n|---|---|---|---|---|---|")
    for (order, load), mine in shown:
        ratios = [pair.log_ratio for pair in mine]
        low, high = all_pairs(ratios)
        says = "yes" if low > 1 or high < 1 else "no"
        print(f"| {order} | {load} | all {len(mine)} | {low:.3f} to {high:.3f} | ×{high / low:.2f} | {says} |")
        for repeats in (k for k in (2, 3, 5, 8) if k <= len(ratios)):
            width, share = resample(ratios, repeats)
            print(f"| {order} | {load} | {repeats} | drawn | ×{width:.2f} | {share:.1%} |")


def all_pairs(log_ratios: list[float]) -> tuple[float, float]:
    """Student's t interval of the mean ratio, as a comparison of all these pairs would have it."""
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(log_ratios) - 1) * stdev(log_ratios) / math.sqrt(len(log_ratios))
    return math.exp(fmean(log_ratios) - half), math.exp(fmean(log_ratios) + half)


def resample(log_ratios: list[float], repeats: int) -> tuple[float, float]:
    """Of comparisons of so many pairs, drawn from real ones: the median of upper over lower end of the interval, and
    the share of intervals that exclude 1."""
    generator = np.random.default_rng(7)
    drawn = generator.permuted(np.tile(log_ratios, (DRAWS, 1)), axis=1)[:, :repeats]
    drawn *= generator.choice([-1.0, 1.0], (DRAWS, repeats))
    half = stats.t.ppf((1 + CONFIDENCE) / 2, repeats - 1) * drawn.std(axis=1, ddof=1) / math.sqrt(repeats)
    excluded = np.abs(drawn.mean(axis=1)) > half
    return float(np.exp(2 * np.median(half))), float(excluded.mean())


if __name__ == "__main__":
    main()
