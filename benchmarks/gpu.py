"""Every figure that needs a GPU, within a few minutes, on whatever GPUs there are: `nox -s gpu`, or plainly

    python benchmarks/gpu.py --json gpu.json                # pi0 at its published size, 8 minutes
    python benchmarks/gpu.py --size tiny --minutes 3        # the same path at its smallest; also on CPU

For each native backend: micro-batch (the largest power of two that the first backend holds; a quarter of it where that
does not fit), where the step's time goes, tokens/s, MFU, energy, peaks by phase, exposed communication, and its bf16
losses against the first backend's; then the speed of EGL rendering in an evaluation. What the time does not suffice for
is named, not guessed. Prints one table and writes one JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.backends.support import unsupported
from harness.compare.parity import loss_parity
from harness.errors import HarnessError
from harness.frontier import find_frontier
from harness.machine import Fingerprint, fingerprint
from harness.plan import Cell, PlannedRun, RunKind
from harness.train.launch import launch, read_steps
from harness.train.records import RunRecord, RunSpec, StepRow

BACKENDS: dict[str, dict[str, Any]] = {
    "fsdp2": {"backend": "fsdp2"},
    "zero3": {"backend": "deepspeed", "zero_stage": 3},
    "zero2": {"backend": "deepspeed", "zero_stage": 2},
    "ddp": {"backend": "ddp"},
    "fsdp": {"backend": "fsdp"},
    "zero1": {"backend": "deepspeed", "zero_stage": 1},
}
"""In order of value: the first finds the frontier and is what losses are compared with."""
STEPS, WARMUP_STEPS = 20, 5
HANG_SECONDS = 240.0
EPISODES = 2


@dataclass
class Row:
    """One backend's figures; None where there are none, and then `note` says why."""

    backend: str
    micro_batch: int | None = None
    step_seconds: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    forward_seconds: float | None = None
    backward_seconds: float | None = None
    optimizer_seconds: float | None = None
    joules_per_sample: float | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    forward_backward_peak_bytes: int | None = None
    update_peak_bytes: int | None = None
    exposed_communication_share: float | None = None
    largest_loss_difference: float | None = None
    loss_agrees: bool | None = None
    note: str = ""


@dataclass
class Answer:
    machine: dict[str, Any]
    model: str
    ranks: int
    precision: str
    rows: list[Row] = field(default_factory=list)
    frontier: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None
    seconds: float = 0.0


class Budget:
    """Seconds left, and whether they suffice for one more of what has been timed so far."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._end, self._longest = clock, clock() + seconds, 0.0

    def suffices(self) -> bool:
        return self._clock() + self._longest < self._end

    def timed(self, work: Callable[[], Any]) -> Any:
        started = self._clock()
        try:
            return work()
        finally:
            self._longest = max(self._longest, self._clock() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="full")
    parser.add_argument("--ranks", type=int, default=None, help="default: one per GPU, at most 8; 1 on CPU")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--largest", type=int, default=64, help="largest micro-batch of interest")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--no-evaluation", action="store_true")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"))
    options = parser.parse_args()
    machine = fingerprint()
    ranks = options.ranks or max(1, min(8, len(machine.gpus)))
    answer = Answer(machine.model_dump(mode="json"), f"pi0 {options.size}", ranks, options.precision)
    started, budget = time.monotonic(), Budget(60 * options.minutes)
    with tempfile.TemporaryDirectory(prefix="harness-gpu-") as folder:
        for row in measured_rows(options, ranks, machine, Path(folder), budget, answer):
            answer.rows.append(row)
            print(f"{row.backend}: {row.note or 'done'}", file=sys.stderr, flush=True)
    if not options.no_evaluation:
        answer.evaluation = evaluation_speed() if budget.suffices() else {"note": "no time left"}
    answer.seconds = time.monotonic() - started
    options.json.write_text(json.dumps(asdict(answer), indent=1) + "\n")
    print(table(answer))
    return 0 if any(row.step_seconds for row in answer.rows) else 1


def measured_rows(
    options: argparse.Namespace, ranks: int, machine: Fingerprint, folder: Path, budget: Budget, answer: Answer
) -> Iterator[Row]:
    """Finds the micro-batch with the first backend that can, then measures all of them with it."""
    micro_batch, reference = None, None
    for name in options.backends.split(","):
        cell = a_cell(name, ranks, options)
        reason = unsupported(cell, cuda=bool(machine.gpus))
        if reason is not None or not budget.suffices():
            yield Row(name, note=reason or "no time left")
            continue
        if micro_batch is None:
            found = find_frontier(
                cell, folder / "frontier", machine, limit=options.largest, powers_only=True,
                on_try=lambda tried: print(f"micro-batch {tried.micro_batch}: {tried.outcome}", file=sys.stderr),
            )  # fmt: skip
            answer.frontier = found.model_dump(mode="json")
            micro_batch = found.largest_micro_batch
            if micro_batch is None:
                yield Row(name, note=str(found.reason))
                continue
        record, steps = budget.timed(lambda c=cell, m=micro_batch: fitting_run(c, m, folder, machine))
        row = row_of(name, record)
        reference = reference or steps
        if steps and reference:
            parity = loss_parity(reference, steps, options.precision, "first", name, "timing")
            row.largest_loss_difference, row.loss_agrees = parity.max_difference, parity.holds
        yield row


def a_cell(name: str, ranks: int, options: argparse.Namespace) -> Cell:
    return Cell.model_validate(
        {
            "label": f"pi0-{name}",
            "model": "pi0",
            "size": options.size,
            "ranks": ranks,
            "precision": options.precision,
            "backend": BACKENDS[name],
            "data": {"source": "synthetic"},
            "optimizer": {"lr": 2.5e-5},
        }
    )


def fitting_run(cell: Cell, micro_batch: int, folder: Path, machine: Fingerprint) -> tuple[RunRecord, list[StepRow]]:
    """A timing run with that micro-batch, or with a quarter of it when it is out of memory."""
    for size in dict.fromkeys((micro_batch, max(1, micro_batch // 4))):
        run = PlannedRun(
            cell=cell.model_copy(update={"micro_batch": size}), kind=RunKind.TIMING, repeat=size, training_seed=7,
            steps=STEPS + WARMUP_STEPS, warmup_steps=WARMUP_STEPS,
        )  # fmt: skip
        attempt = folder / run.key
        spec = RunSpec(run=run, attempt=1, seed=7, folder=str(attempt), data_folder=None, resume_from=None, trace=True)
        record = launch(spec, machine, hang_seconds=HANG_SECONDS, on_step=lambda _row: None)
        if record.outcome != "OOM":
            break
    return record, read_steps(attempt) if record.outcome == "OK" else []


def row_of(name: str, record: RunRecord) -> Row:
    speed, memory, peaks = record.speed, record.memory, record.phase_peaks
    row = Row(name, micro_batch=record.run.cell.micro_batch)
    if speed is None or memory is None:
        row.note = f"{record.outcome}: {record.failure.reason if record.failure else 'no figures'}"
        return row
    row.step_seconds, row.tokens_per_second = speed.step_seconds, speed.tokens_per_second
    row.mfu, row.hfu, row.joules_per_sample = speed.mfu, speed.hfu, speed.joules_per_sample
    row.forward_seconds, row.backward_seconds = speed.median_forward_seconds, speed.median_backward_seconds
    row.optimizer_seconds = speed.median_optimizer_seconds
    row.peak_allocated_bytes, row.peak_reserved_bytes = memory.peak_allocated_bytes, memory.peak_reserved_bytes
    if peaks is not None:
        row.forward_backward_peak_bytes, row.update_peak_bytes = peaks.forward_backward_bytes, peaks.update_bytes
    row.exposed_communication_share = record.exposed_communication_share
    row.note = "" if speed.steadiness == "STEADY" else speed.steadiness
    return row


def evaluation_speed() -> dict[str, Any]:
    """Episodes of doing nothing in LIBERO, which last their whole budget: simulation and rendering alone."""
    with tempfile.TemporaryDirectory(prefix="harness-gpu-evaluation-") as results:
        arguments = ["--policy", "still", "--task-suite", "libero_object", "--tasks", "0", "--episodes", str(EPISODES)]
        command = [sys.executable, "-m", "harness", "evaluate", *arguments, "--results", results, "--quiet"]
        started = time.monotonic()
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        except subprocess.TimeoutExpired:
            return {"note": "not done after 240 s"}
        seconds = time.monotonic() - started
        files = sorted(Path(results).rglob("episodes.jsonl"))
        episodes = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        arm = next(iter(Path(results).rglob("protocol.json")), None)
        renderer = json.loads(arm.read_text()).get("gl_renderer") if arm else None
    if not episodes:
        return {"note": (answer.stderr.strip().splitlines() or ["no episode was recorded"])[-1]}
    looks = sum(episode["looks"] for episode in episodes)
    busy = sum(episode["wall_seconds"] for episode in episodes)
    return {
        "gl_renderer": renderer,
        "episodes": len(episodes),
        "looks_per_second": looks / busy,
        "wall_seconds": seconds,
    }


def table(answer: Answer) -> str:
    gpus = answer.machine["gpus"]
    where = f"{len(gpus)} × {gpus[0]}" if gpus else answer.machine["cpu"]
    lines = [
        f"{answer.model}, {answer.precision}, {answer.ranks} rank(s) on {where}, {answer.seconds:.0f} s in all",
        "",
        "| Backend | Micro-batch | Step ms | fwd/bwd/update ms | Tokens/s | MFU | J/sample | Peak alloc. GiB | "
        "forward+backward | update | Exposed | Δ loss | Note |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in answer.rows:
        cells = [
            row.backend,
            shown(row.micro_batch),
            shown(row.step_seconds, "{:.0f}", 1e3),
            "/".join(
                shown(part, "{:.0f}", 1e3)
                for part in (row.forward_seconds, row.backward_seconds, row.optimizer_seconds)
            ),
            shown(row.tokens_per_second, "{:.0f}"),
            shown(row.mfu, "{:.1%}"),
            shown(row.joules_per_sample, "{:.1f}"),
            *(
                shown(size, "{:.1f}", 2**-30)
                for size in (row.peak_allocated_bytes, row.forward_backward_peak_bytes, row.update_peak_bytes)
            ),
            shown(row.exposed_communication_share, "{:.1%}"),
            shown(row.largest_loss_difference, "{:.1e}") + ("" if row.loss_agrees in (None, True) else " departs"),
            row.note,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if answer.evaluation:
        lines += ["", f"Evaluation: {json.dumps(answer.evaluation)}"]
    return "\n".join(lines)


def shown(value: float | None, form: str = "{}", factor: float = 1) -> str:
    return "–" if value is None else form.format(value * factor)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except HarnessError as error:
        raise SystemExit(f"gpu: {error}") from None
