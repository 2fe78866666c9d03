"""How our own cost grows with what is stored: `python benchmarks/growth.py`. Exits with 1 where it is more than linear.

Histories of up to 10,000 runs and 1,000,000 episodes, each four times the one before, in a temporary folder: results of
ten real runs, their times scattered by one per cent, and 1,000 episodes. Each stage runs in a fresh process; shown are
its CPU seconds after the imports and its peak of resident memory. Four times as many may take `SLACK` times four.

- plan: a suite of as many runs and episodes is resolved, and asked what is left when all but one run is done;
- report: the newest result is compared, set beside the whole history, and written as `report.md` and `report.html`;
- history: every run, verdict and episode becomes a row of a Parquet data set (`harness history`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from harness.history import each_result
from harness.machine import fingerprint
from harness.plan import Plan
from harness.planning import make_plan
from harness.run import Workplace, conclude, conclude_dossier, write_page
from harness.store import BaselineFolder, Store
from harness.suite import Suite
from harness.train.memory import peak_resident_bytes
from harness.work import AttemptState, Progress, next_work

ROOT = Path(__file__).parents[1]
REAL = ROOT / "tests" / "report" / "real" / "results" / "fsdp2" / "20261130-020957-9b0616"
RUNS_EACH, EPISODES_EACH = 10, 1000
"""Of one result."""
SIZES = (1, 4, 16)
"""Sixteenths of the largest history."""
LARGEST_RUNS = 10_000
VARIANTS, NOISE = 20, 0.01
SLACK = 1.25
"""Over linear growth between two sizes: what a busy machine does to CPU seconds."""


class Cost(NamedTuple):
    cpu_seconds: float
    peak_bytes: int


def lay_out(root: Path, results: int) -> None:
    """Adds to `root` what it lacks of so many results. Files that are equal are hard links to one."""
    parts = root.parent / "parts"
    if not parts.exists():
        _make_parts(parts)
    for number in range(len(list(root.glob("fsdp2/*/plan.json"))), results):
        when = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=number)
        shutil.copytree(
            parts / str(number % VARIANTS), root / "fsdp2" / f"{when:%Y%m%d-%H%M%S}-9b0616", copy_function=os.link
        )


def _make_parts(parts: Path) -> None:
    noise = random.Random(7)
    for variant in range(VARIANTS):
        folder = parts / str(variant)
        shutil.copytree(REAL, folder)
        for record in folder.glob("train/*/*/attempt-1/run.json"):
            scaled = partial(_scaled, math.exp(noise.gauss(0.0, NOISE)))
            record.write_text(re.sub(r'(_seconds|_bytes)": (\d+\.\d+)', scaled, record.read_text()))
        arms = sorted(folder.glob("evaluate/*/episodes.jsonl"))
        for arm in arms:
            line = json.loads(arm.read_text().splitlines()[0])
            keys = [line["key"] | {"seed": seed} for seed in range(EPISODES_EACH // len(arms))]
            arm.write_text("".join(json.dumps(line | {"key": key}) + "\n" for key in keys))
    store = Store(parts.parent / "one")
    shutil.copytree(parts / "0", store.root / "fsdp2" / "20200101-000000-9b0616")
    (result,) = store.results("fsdp2")
    conclude(result, Workplace(store, BaselineFolder(store.root / "baselines"), fingerprint(), ""))
    for variant in range(VARIANTS):
        shutil.copy(result.comparison_file, parts / str(variant) / result.comparison_file.name)


def _scaled(factor: float, found: re.Match[str]) -> str:
    return f'{found[1]}": {float(found[2]) * factor}'


# --- stages ------------------------------------------------------------------------------------------------


def plan(_root: Path, runs: int) -> None:
    suite = _large_suite(runs)
    made = make_plan("growth", suite, "cpu", cuda=False)
    assert len(made.runs) >= 0.9 * runs, len(made.runs)
    assert len(made.arms) * len(made.episodes) >= 0.9 * runs * EPISODES_EACH / RUNS_EACH
    assert next_work(made, _all_but_one(made)) is not None


def _large_suite(runs: int) -> Suite:
    """Its episodes are those of LIBERO's four suites, for each of its checkpoints."""
    episodes = runs * EPISODES_EACH // RUNS_EACH
    arms = max(1, episodes // 2000)
    scopes = [
        {"task_suite": name, "tasks": list(range(10)), "initial_states": "0-49"}
        for name in ("libero_spatial", "libero_object", "libero_goal", "libero_10")
    ]
    return Suite.model_validate(
        {
            "purpose": "bench",
            "defaults": {"ranks": 2},
            "data": {"source": "synthetic"},
            "models": {"pi0": {"model": "pi0", "size": "micro"}},
            "backends": {"zero3": {"backend": "deepspeed"}, "fsdp2": {"backend": "fsdp2"}},
            "throughput": {"reference": "zero3", "repeats": (runs - arms) // 2, "steps": 30, "order": "turns"},
            "learning": {"backends": ["fsdp2"], "training_seeds": list(range(arms)), "steps": 100},
            "evaluation": {"protocol": "micro", "arms": ["learned"], "scopes": scopes},
        }
    )


def _all_but_one(made: Plan) -> Progress:
    done = [AttemptState(number=1, outcome="OK", checkpoint=None)]
    return Progress(
        demonstrations_ready=True,
        attempts={run.key: done for run in made.runs[:-1]},
        evaluated={arm.name: frozenset(made.episodes) for arm in made.arms},
    )


def report(root: Path, runs: int) -> None:
    store = Store(root)
    place = Workplace(store, BaselineFolder(root / "baselines"), fingerprint(), "")
    newest = store.results("fsdp2")[-1]
    for file in (newest.comparison_file, newest.report_file):
        file.unlink(missing_ok=True)  # a hard link: the others keep theirs
    dossier = conclude_dossier(newest, place)
    assert len(dossier.history.runs) == runs
    write_page(newest, dossier)


def history(root: Path, runs: int) -> None:
    from harness.report.export.rows import write_history

    with tempfile.TemporaryDirectory() as folder:
        written = write_history(each_result(Store(root)), Path(folder))
    assert (len(written.history.runs), written.episodes) == (runs, runs * EPISODES_EACH // RUNS_EACH)


STAGES: dict[str, Callable[[Path, int], None]] = {"plan": plan, "report": report, "history": history}


def warm_up() -> None:
    """Imports what the stages import on their way."""
    import matplotlib.figure
    import pyarrow.parquet
    from scipy import special

    assert matplotlib.figure and pyarrow.parquet and special


# --- measuring ----------------------------------------------------------------------------------------------


def measured(stage: str, root: Path, runs: int) -> Cost:
    command = [sys.executable, __file__, "--stage", stage, "--root", str(root), "--runs", str(runs)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Cost(**json.loads(done.stdout))


def growth(small: Cost, large: Cost, factor: float) -> float:
    """CPU seconds of the large one over linear growth from the small one."""
    return large.cpu_seconds / small.cpu_seconds / factor


def table(costs: dict[str, dict[int, Cost]]) -> str:
    lines = ["| stage | runs | episodes | CPU s | over linear | peak MiB |", "|---|---:|---:|---:|---:|---:|"]
    for stage, found in costs.items():
        before: tuple[int, Cost] | None = None
        for runs, cost in found.items():
            over = "" if before is None else f"{growth(before[1], cost, runs / before[0]):.2f}×"
            episodes = runs * EPISODES_EACH // RUNS_EACH
            peak = f"{cost.peak_bytes / 2**20:.0f}"
            lines.append(f"| {stage} | {runs:,} | {episodes:,} | {cost.cpu_seconds:.2f} | {over} | {peak} |")
            before = runs, cost
    return "\n".join(lines)


def broken(costs: dict[str, dict[int, Cost]]) -> list[str]:
    """Stages whose CPU seconds or memory grew more than linearly between the two largest sizes."""
    found = []
    for stage, by_runs in costs.items():
        (less, small), (more, large) = list(by_runs.items())[-2:]
        if growth(small, large, more / less) > SLACK:
            found.append(f"{stage}: CPU seconds")
        if large.peak_bytes > SLACK * more / less * small.peak_bytes:
            found.append(f"{stage}: memory")
    return found


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--stages", default=",".join(STAGES), help="only these")
    asked.add_argument("--largest", type=int, default=LARGEST_RUNS, help="runs of the largest history")
    asked.add_argument("--stage", help=argparse.SUPPRESS)
    asked.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    asked.add_argument("--runs", type=int, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.stage:
        warm_up()
        start = time.process_time()
        STAGES[given.stage](given.root, given.runs)
        spent = Cost(time.process_time() - start, peak_resident_bytes())
        print(json.dumps(spent._asdict()))
        return 0
    costs: dict[str, dict[int, Cost]] = {stage: {} for stage in given.stages.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "results"
        for size in SIZES:
            results = given.largest * size // (max(SIZES) * RUNS_EACH)
            lay_out(root, results)
            for stage, found in costs.items():
                found[results * RUNS_EACH] = measured(stage, root, results * RUNS_EACH)
                print(f"{stage}, {results * RUNS_EACH} runs: {found[results * RUNS_EACH]}", file=sys.stderr, flush=True)
    print(table(costs))
    for what in broken(costs):
        print(f"more than linear: {what}")
    return 1 if broken(costs) else 0


if __name__ == "__main__":
    raise SystemExit(main())
