"""Real runs for the tests of the native stack: short, two ranks, synthetic data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.machine import Fingerprint
from harness.plan import Cell, PlannedRun, RunKind
from harness.train.launch import WORKER, launch
from harness.train.records import RunRecord, RunSpec, StepRow

BACKENDS: dict[str, dict[str, Any]] = {
    "ddp": {"backend": "ddp"},
    "fsdp": {"backend": "fsdp"},
    "fsdp2": {"backend": "fsdp2"},
    "zero1": {"backend": "deepspeed", "zero_stage": 1},
    "zero2": {"backend": "deepspeed", "zero_stage": 2},
    "zero3": {"backend": "deepspeed", "zero_stage": 3},
}
SHARDED = ("fsdp", "fsdp2", "zero3")
HANG_SECONDS = 120.0

FINGERPRINT = Fingerprint(
    hardware_key="cpu-test",
    hostname="test",
    cpu="test",
    cores=2,
    memory_bytes=1,
    gpus=[],
    kernel="test",
    python="3.11",
    versions={},
)


def cell(backend: str, **settings: Any) -> Cell:
    """A tiny cell whose clipping bites: initial gradient norms are above 1."""
    plain = {
        "label": f"pi0-tiny/{backend}",
        "model": "pi0",
        "size": "tiny",
        "micro_batch": 4,
        "backend": BACKENDS[backend],
        "data": {"source": "synthetic"},
    }
    return Cell.model_validate(plain | settings)


def spec(
    folder: Path,
    chosen: Cell,
    *,
    kind: RunKind = RunKind.TIMING,
    steps: int = 8,
    warmup_steps: int = 2,
    checkpoint_every: int | None = None,
    resume_from: Path | None = None,
) -> RunSpec:
    run = PlannedRun(
        cell=chosen,
        kind=kind,
        repeat=0,
        training_seed=3,
        steps=steps,
        warmup_steps=warmup_steps,
        checkpoint_every=checkpoint_every,
    )
    return RunSpec(
        run=run,
        attempt=1,
        seed=3,
        folder=str(folder),
        data_folder=None,
        resume_from=None if resume_from is None else str(resume_from),
    )


def run(order: RunSpec, *, worker: str = WORKER, hang_seconds: float = HANG_SECONDS) -> RunRecord:
    return launch(order, FINGERPRINT, hang_seconds=hang_seconds, on_step=_ignore, worker=worker)


def _ignore(_row: StepRow) -> None:
    return None


def plant(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """The worker "sabotage" will have this fault."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.setenv("FAULT", fault)


def children() -> list[psutil.Process]:
    """torchrun and its ranks; multiprocessing's resource tracker, if earlier tests left one, is nobody's rank."""
    below = psutil.Process().children(recursive=True)
    return [child for child in below if "resource_tracker" not in " ".join(child.cmdline())]
