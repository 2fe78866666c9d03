"""Does the gate find what is planted, and is it quiet when nothing is? Nights put together from recorded runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.compare.baseline import Acceptance, Baseline, accept
from harness.compare.comparison import compare
from harness.compare.gate import compare_with
from harness.compare.metrics import METRICS
from harness.compare.results import Results, ended_well, unique
from harness.compare.verdict import Judgement, Verdict
from harness.errors import ExitCode, HarnessError, worst
from harness.plan import Plan, RunKind
from harness.records import Record, Value
from harness.statistics.interval import Interval
from harness.statistics.proportions import wilson
from harness.train.records import RunRecord

TWICE = 2.0
"""Planted effects are this many times the smallest detectable one that the verdict itself states."""
LEAST_CAUGHT, MOST_FALSE = 0.95, 0.01
"""What the gate promises: of planted slowdowns of twice the detectable size, and of nights without a plant."""


class DrillRow(Value):
    """Nights of one kind."""

    plant: str
    where: str
    """The planted cell or arm, or `every figure`."""
    source: Literal["real", "resampled"]
    """`real`: fresh processes were started for each night. `resampled`: put together from recorded runs."""
    nights: int
    called: int
    """Nights that ended as they should for a plant: REGRESSED there, or for damage a code other than 0."""
    expected: Literal["caught", "quiet"]
    share: Interval | None
    """Called of all, Wilson; None without a night."""
    holds: bool | None
    """Whether the promise is kept; None where too few nights can say."""


class DrillReport(Record):
    """`drill.json`."""

    suite: str
    hardware_key: str
    results: list[str]
    baseline_processes: int
    night_processes: int
    rows: list[DrillRow]


@dataclass(frozen=True)
class Block:
    """One repeat of all cells: label → its run."""

    runs: dict[str, RunRecord]


@dataclass(frozen=True)
class Night:
    """A made-up night with its baseline."""

    plan: Plan
    baseline: Baseline
    results: Results


class Pool:
    """Recorded timing runs without a plant, kept in nights: runs of one result lie closer together than others."""

    def __init__(self, found: Sequence[Results], night_processes: int, baseline_processes: int) -> None:
        """
        Raises:
            HarnessError: too few recorded runs for a baseline, a night and its confirmation.
        """
        self.night_processes, self.baseline_processes = night_processes, baseline_processes
        self.labels = unique(label for results in found for label in results.labels(RunKind.TIMING))
        self.results = [results.result_id for results in found]
        self.nights: list[list[Block]] = []
        for results in found:
            blocks = _blocks(results, self.labels)
            self.nights += [blocks[at : at + night_processes] for at in range(0, len(blocks), night_processes)]
        whole = sum(len(night) == night_processes for night in self.nights)
        have, need = sum(map(len, self.nights)), baseline_processes + 2 * night_processes
        if have < need or whole < 2:
            raise HarnessError(
                f"{have} recorded repeats of {', '.join(self.labels) or 'nothing'}; a baseline of "
                f"{baseline_processes}, a night of {night_processes} and its confirmation "
                f"need {need}: run `harness calibrate`, or fewer"
            )

    def draw(self, plan: Plan, rng: random.Random) -> Night:
        """Two whole nights for tonight and its confirmation, the baseline from all others; nothing twice."""
        order = list(self.nights)
        rng.shuffle(order)
        order.sort(key=len, reverse=True)  # stable: whole nights first, still shuffled
        tonight, again, rest = order[0], order[1], [block for night in order[2:] for block in night]
        old = rng.sample(rest, self.baseline_processes)
        act = Acceptance(result="drill", at=_first_start(tonight), by="drill", reason="drill", command="drill")
        baseline = accept(plan, Results("drill", "", _renumbered(old)), None, act)
        results = Results("drill", "", _renumbered(tonight), confirmation_runs=_renumbered(again))
        return Night(plan, baseline, results)


def _blocks(results: Results, labels: list[str]) -> list[Block]:
    """Repeats in which every cell ended well; confirmations are repeats like any other."""
    runs = [*results.runs, *results.confirmation_runs]
    by_repeat: dict[int, dict[str, RunRecord]] = {}
    for run in ended_well(runs):
        if run.run.kind is RunKind.TIMING and run.run.planted is None:
            by_repeat.setdefault(run.run.repeat, {})[run.run.cell.label] = run
    return [Block(by_repeat[repeat]) for repeat in sorted(by_repeat) if set(by_repeat[repeat]) == set(labels)]


def _renumbered(blocks: Sequence[Block]) -> list[RunRecord]:
    return [
        run.model_copy(update={"run": run.run.model_copy(update={"repeat": repeat})})
        for repeat, block in enumerate(blocks)
        for run in block.runs.values()
    ]


def _first_start(blocks: Sequence[Block]) -> str:
    return min(run.started_at for block in blocks for run in block.runs.values())


# --- plants on records -------------------------------------------------------------------------------------

Worsen = Callable[[RunRecord, float], RunRecord]


def slower(run: RunRecord, factor: float) -> RunRecord:
    """The record of a run whose every step lasted `factor` times as long."""
    assert run.speed is not None
    speed = run.speed
    times = ("median_step_seconds", "p95_step_seconds", "p99_step_seconds")
    longer = {name: seconds * factor for name in times if (seconds := getattr(speed, name)) is not None}
    rates = {name: getattr(speed, name) / factor for name in ("samples_per_second", "tokens_per_second")}
    turns = {"turn_step_seconds": [seconds * factor for seconds in speed.turn_step_seconds]}
    return run.model_copy(update={"speed": speed.model_copy(update={**longer, **turns, **rates})})


def heavier(run: RunRecord, factor: float) -> RunRecord:
    """The record of a run whose peak memory was `factor` times as large."""
    assert run.memory is not None
    sizes = {
        name: round(size * factor)
        for name in ("peak_resident_bytes", "peak_allocated_bytes", "peak_reserved_bytes")
        if (size := getattr(run.memory, name)) is not None
    }
    return run.model_copy(update={"memory": run.memory.model_copy(update=sizes)})


def with_plant(night: Night, label: str, worsen: Worsen, factor: float) -> Night:
    """Both stages of one cell made worse."""

    def touched(runs: list[RunRecord]) -> list[RunRecord]:
        return [worsen(run, factor) if run.run.cell.label == label else run for run in runs]

    results = night.results
    changed = replace(results, runs=touched(results.runs), confirmation_runs=touched(results.confirmation_runs))
    return replace(night, results=changed)


def judged(night: Night) -> list[Judgement]:
    return compare_with(night.baseline, night.plan, night.results)


def _of(judgements: list[Judgement], label: str, metric: str) -> Judgement | None:
    return next((j for j in judgements if (j.subject, j.metric) == (label, metric)), None)


# --- the nights --------------------------------------------------------------------------------------------


def resampled_rows(pool: Pool, plan: Plan, nights: int, seed: int) -> list[DrillRow]:
    """Nights without a plant, slowdowns and memory growth of twice the detectable size, and damage."""
    rng = random.Random(seed)
    alarms = sum(any(j.verdict is Verdict.REGRESSED for j in judged(pool.draw(plan, rng))) for _ in range(nights))
    rows = [row("none (A/A)", "every figure", "resampled", nights, alarms, "quiet")]
    for plant, worsen, metric in (("sleep", slower, "step_seconds"), ("ballast", heavier, memory_metric(pool))):
        for label in pool.labels:
            caught = [_caught(pool.draw(plan, rng), label, worsen, metric) for _ in range(nights)]
            seen = [found for found in caught if found is not None]
            what = f"{plant}, twice the detectable {metric}"
            rows.append(row(what, label, "resampled", len(seen), sum(seen), "caught"))
    rows += [_dropped_cells(pool, plan, rng), _doctored_baselines(pool, plan, rng)]
    return [found for found in rows if found.nights]


def memory_metric(pool: Pool) -> str:
    """Allocated on CUDA, else the resident set."""
    runs = [run for night in pool.nights for block in night for run in block.runs.values()]
    allocated = METRICS["peak_allocated_bytes"]
    return allocated.name if any(allocated.read(run) for run in runs) else "peak_resident_bytes"


def _caught(night: Night, label: str, worsen: Worsen, metric: str) -> bool | None:
    """None where the baseline states no detectable size."""
    before = _of(judged(night), label, metric)
    if before is None or before.smallest_detectable is None:
        return None
    metric_floor = METRICS[metric].floor / before.reference if before.reference else 0.0
    effect = max(before.smallest_detectable - 1, metric_floor)
    after = _of(judged(with_plant(night, label, worsen, 1 + TWICE * effect)), label, metric)
    return after is not None and after.verdict is Verdict.REGRESSED


def _dropped_cells(pool: Pool, plan: Plan, rng: random.Random) -> DrillRow:
    """A cell whose records are gone must not leave a green night."""
    called = 0
    for label in pool.labels:
        night = pool.draw(plan, rng)
        kept = replace(night.results, runs=[r for r in night.results.runs if r.run.cell.label != label])
        called += compare(plan, kept, night.baseline, []).exit_code is not ExitCode.OK
    return row("dropped cell", "each in turn", "resampled", len(pool.labels), called, "caught")


def _doctored_baselines(pool: Pool, plan: Plan, rng: random.Random) -> DrillRow:
    """Room made in the file by hand: every value a fifth larger."""
    called = 0
    for label in pool.labels:
        night = pool.draw(plan, rng)
        cells = [
            cell.model_copy(update={"values": {name: [1.2 * v for v in vs] for name, vs in cell.values.items()}})
            if cell.subject == label
            else cell
            for cell in night.baseline.cells
        ]
        forged = replace(night, baseline=night.baseline.model_copy(update={"cells": cells}))
        called += worst(j.verdict.exit_code for j in judged(forged) if j.subject == label) is not ExitCode.OK
    return row("doctored baseline", "each cell in turn", "resampled", len(pool.labels), called, "caught")


def row(
    plant: str,
    where: str,
    source: Literal["real", "resampled"],
    nights: int,
    called: int,
    expected: Literal["caught", "quiet"],
) -> DrillRow:
    """A row with its interval, and whether the promise is kept as far as so many nights can say."""
    share = wilson(called, nights) if nights else None
    holds: bool | None = None
    if share is not None:
        good = share.estimate >= LEAST_CAUGHT if expected == "caught" else share.estimate <= MOST_FALSE
        holds = good if nights >= 1 / MOST_FALSE or not good or expected == "caught" else None
    return DrillRow(
        plant=plant,
        where=where,
        source=source,
        nights=nights,
        called=called,
        expected=expected,
        share=share,
        holds=holds,
    )
