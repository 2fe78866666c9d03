"""How long a report over 1,000 stored runs takes: `python benchmarks/report_speed.py`. Exits with 1 beyond 2 seconds.

A hundred results of ten real runs each, their times scattered by one per cent, are laid out in a temporary folder.
Timed is what `harness report` does from reading the records to `report.md` and `report.html` with its plots on disk;
what Python takes to import libraries is left out by a first, untimed report. The whole command is shown beside it.
"""

from __future__ import annotations

import math
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from harness.machine import fingerprint
from harness.run import Workplace, conclude_dossier, write_page
from harness.store import BaselineFolder, ResultFolder, Store

ROOT = Path(__file__).parents[1]
REAL = ROOT / "tests" / "report" / "real" / "results" / "fsdp2" / "20261130-020957-9b0616"
RESULTS, RUNS_EACH, NOISE = 100, 10, 0.01
MOST_SECONDS = 2.0
TRIES = 3
"""The quickest counts: the others tell of the machine."""


def lay_out(root: Path) -> None:
    noise = random.Random(7)
    for number in range(RESULTS):
        when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
        folder = root / "fsdp2" / f"{when:%Y%m%d-%H%M%S}-9b0616"
        shutil.copytree(REAL, folder)
        for record in folder.glob("train/*/*/attempt-1/run.json"):
            factor = math.exp(noise.gauss(0.0, NOISE))
            record.write_text(re.sub(r'(_seconds|_bytes)": (\d+\.\d+)', partial(_scaled, factor), record.read_text()))
    found = len(list(root.glob("fsdp2/*/train/*/*/*/run.json")))
    assert found == RESULTS * RUNS_EACH, found


def _scaled(factor: float, found: re.Match[str]) -> str:
    return f'{found[1]}": {float(found[2]) * factor}'


def report(result: ResultFolder, place: Workplace) -> float:
    start = time.perf_counter()
    write_page(result, conclude_dossier(result, place))
    return time.perf_counter() - start


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay_out(root)
        store = Store(root)
        place = Workplace(store, BaselineFolder(root / "baselines"), fingerprint(), "")
        newest = store.results("fsdp2")[-1]
        report(newest, place)
        seconds = min(report(newest, place) for _ in range(TRIES))
        command = [sys.executable, "-m", "harness", "report", "fsdp2", "--results", folder]
        start = time.perf_counter()
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        whole = time.perf_counter() - start
    print(f"{RESULTS * RUNS_EACH} runs: {seconds:.2f} s to report.md and report.html (at most {MOST_SECONDS:g} s)")
    print(f"the whole command, imports included: {whole:.2f} s")
    return 0 if seconds <= MOST_SECONDS else 1


if __name__ == "__main__":
    raise SystemExit(main())
