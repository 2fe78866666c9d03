"""Work as jobs: what makes a job, and real ones through submitit's local executor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import native_runs as native
import psutil
import pytest

from harness.cluster.jobs import Queue, job_groups
from harness.cluster.resources import Slurm
from harness.errors import MachineFault
from harness.plan import PlannedRun, RunKind
from harness.processes import kill_all
from harness.store import read_record
from harness.train.ending import read_steps
from harness.train.records import Outcome, RunRecord
from harness.work import AskGate, Evaluate, TakeTurns, Train, Work


def train(label: str, repeat: int = 0, kind: RunKind = RunKind.TIMING, block: str | None = None) -> Train:
    run = PlannedRun(
        cell=native.cell("ddp", label=label), kind=kind, repeat=repeat, training_seed=0, steps=5, block=block
    )
    return Train(run, 1, None, alone=block is None)


def test_runs_compared_with_each_other_share_a_job_and_all_training_goes_at_once():
    turns = TakeTurns((train("pi0-ddp", block="pi0/1"), train("pi0-zero3", block="pi0/1")))
    abba = [train("dm0-ddp"), train("dm0-zero3"), train("dm0-zero3", 1), train("dm0-ddp", 1)]
    learning = [train("pi0-ddp", 0, RunKind.LEARNING), train("pi0-zero3", 0, RunKind.LEARNING)]
    groups = job_groups([turns, *abba, *learning, Evaluate(())])
    assert groups == [[turns], abba[:2], abba[2:], learning[:1], learning[1:]]


@pytest.mark.parametrize("first", [AskGate(), Evaluate(())])
def test_what_is_not_training_goes_alone(first: Work):
    assert job_groups([first, train("pi0-ddp")]) == [[first]]


def test_what_is_missing_is_said_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineFault, match=r"Could not detect .srun."):
        Queue("slurm", Slurm(), tmp_path)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(MachineFault, match=r"pip install 'vla-harness\[slurm\]'"):
        Queue("local-jobs", Slurm(), tmp_path)


SUITE = """
schema = 1
defaults = { ranks = 1, micro_batch = 2 }
models.own = { model = "one_layer:build", size = "only" }
backends.ddp = { backend = "ddp" }
throughput = { reference = "ddp", repeats = 1, steps = 5, warmup_steps = 1, disturbed_repeats = 0 }
learning = { backends = ["ddp"], steps = 400, checkpoint_every = 5 }
"""


def tasks(controller: psutil.Process) -> list[psutil.Process]:
    """Of submitit: the processes that do a job's work."""
    below = controller.children(recursive=True)
    return [each for each in below if "submitit.core._submit" in " ".join(each.cmdline())]


def wait_until(condition: Callable[[], bool], seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_job_killed_and_a_job_queued_again_go_on_where_they_were(tmp_path):
    (tmp_path / "small.toml").write_text(SUITE)
    command = [sys.executable, "-m", "harness", "run", "small.toml", "--on", "local-jobs"]
    harness = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    watched = psutil.Process(harness.pid)

    def attempt(number: int) -> Path | None:
        return next(tmp_path.glob(f"results/small/*/train/own-ddp/learning-0/attempt-{number}"), None)

    def has_checkpoint(number: int) -> bool:
        folder = attempt(number)
        assert harness.poll() is None, harness.stdout.read()
        return folder is not None and bool(list(folder.glob("checkpoint/*/complete.json")))

    def end_job_of(number: int, by: signal.Signals) -> None:
        for task in tasks(watched):
            if any(str(attempt(number)) in " ".join(each.cmdline()) for each in task.children(recursive=True)):
                task.send_signal(by)

    try:
        wait_until(lambda: has_checkpoint(1))
        end_job_of(1, signal.SIGKILL)
        wait_until(lambda: has_checkpoint(2))
        end_job_of(2, signal.SIGUSR2)  # as Slurm sends it when the time is up
        said = harness.communicate(timeout=400)[0].decode()
    finally:
        below = watched.children(recursive=True) if watched.is_running() else []
        harness.kill()
        kill_all(below)  # jobs outlive the command that submitted them
    print(said)
    assert harness.returncode == 11, said
    assert "ended without an answer; once more (2 of 3)" in said
    assert said.count("once more") == 1
    assert not (attempt(1) / "run.json").exists() and not (attempt(2) / "run.json").exists()
    record = read_record(attempt(3) / "run.json", RunRecord)
    assert record.outcome is Outcome.OK
    rows = read_steps(attempt(3))
    assert [row.step for row in rows] == list(range(400)) and rows[4].resumed and not rows[-1].resumed
    assert not list(tmp_path.glob("results/small/jobs/*.json"))
    assert json.loads(next(tmp_path.glob("results/small/*/comparison.json")).read_text())
