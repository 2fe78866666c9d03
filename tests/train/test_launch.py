"""Every way a process group can end, caused for real."""

from __future__ import annotations

from pathlib import Path

import native_runs as native
import psutil
import pytest

from harness.store import read_record
from harness.train.agent import rank_environment
from harness.train.journal import latest_checkpoint
from harness.train.launch import launch, read_steps
from harness.train.records import Outcome, RunRecord, StepRow


def stub_run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, fault: str, *, hang_seconds: float = native.HANG_SECONDS
) -> RunRecord:
    native.plant(monkeypatch, fault)
    order = native.spec(folder, native.cell("ddp", model="stub"))
    return native.run(order, worker="sabotage", hang_seconds=hang_seconds)


def test_exception_in_one_rank_is_told_in_its_own_words(monkeypatch, tmp_path):
    record = stub_run(monkeypatch, tmp_path, "raise 1 3")
    assert record.outcome is Outcome.CRASHED
    assert record.failure.rank == 1
    assert record.failure.reason == "rank 1: ValueError: planted by the test"
    assert "in at" in record.failure.traceback
    assert record.speed is None and record.memory is None and record.final_loss is None
    assert [row.step for row in read_steps(tmp_path)] == [0, 1, 2]
    assert read_record(tmp_path / "run.json", RunRecord) == record


def test_a_rank_without_address_space_is_out_of_memory(monkeypatch, tmp_path):
    record = stub_run(monkeypatch, tmp_path, "memory 0 2")
    assert (record.outcome, record.failure.rank, record.failure.phase) == (Outcome.OOM, 0, "training")
    assert record.failure.traceback.rstrip().endswith("MemoryError")
    assert record.failure.peak_bytes > 2**26
    assert "while training" in record.failure.reason and "MiB resident at the peak" in record.failure.reason


@pytest.mark.full
def test_exit_without_exception_is_found_out(monkeypatch, tmp_path):
    record = stub_run(monkeypatch, tmp_path, "exit 1 2")
    assert (record.outcome, record.failure.rank, record.failure.exit_code) == (Outcome.CRASHED, 1, 7)


def test_nan_loss_is_divergence_and_its_step_is_kept(monkeypatch, tmp_path):
    record = stub_run(monkeypatch, tmp_path, "nan 1 2")
    assert record.outcome is Outcome.DIVERGED
    assert "step 2: loss nan" in record.failure.reason
    assert [row.loss is None for row in read_steps(tmp_path)] == [False, False, True]


def test_sleeping_rank_is_named_and_its_stack_kept(monkeypatch, tmp_path):
    record = stub_run(monkeypatch, tmp_path, "sleep 1 3", hang_seconds=10)
    assert record.outcome is Outcome.HUNG
    assert record.failure.rank == 1
    assert "sabotage.py" in record.failure.traceback
    assert "barrier" in (tmp_path / "logs" / "rank-0.stacks.txt").read_text()
    assert not native.children()


def test_killed_torchrun_leaves_no_orphan(monkeypatch, tmp_path):
    native.plant(monkeypatch, "slow 0 0")
    ranks: list[psutil.Process] = []

    def kill_torchrun(row: StepRow) -> None:
        if not ranks:
            torchrun = native.children()[0]
            ranks.extend(torchrun.children(recursive=True))
            torchrun.kill()

    order = native.spec(tmp_path, native.cell("ddp", model="stub"), steps=1000)
    record = launch(order, native.FINGERPRINT, hang_seconds=60, on_step=kill_torchrun, worker="sabotage")
    assert len(ranks) >= 2
    assert not psutil.wait_procs(ranks, timeout=5)[1]
    assert record.outcome is Outcome.CRASHED
    assert "torchrun was killed by signal 9" in record.failure.reason


def test_interrupt_stops_the_ranks_and_is_passed_on(monkeypatch, tmp_path):
    native.plant(monkeypatch, "slow 0 0")
    ranks: list[psutil.Process] = []

    def interrupt(row: StepRow) -> None:
        ranks.extend(native.children())
        raise KeyboardInterrupt

    order = native.spec(tmp_path, native.cell("ddp", model="stub"), steps=1000)
    with pytest.raises(KeyboardInterrupt):
        launch(order, native.FINGERPRINT, hang_seconds=60, on_step=interrupt, worker="sabotage")
    assert len(ranks) >= 3
    assert not psutil.wait_procs(ranks, timeout=5)[1]
    record = read_record(tmp_path / "run.json", RunRecord)
    assert record.outcome is Outcome.INTERRUPTED
    assert record.speed is None


def test_outer_torchrun_does_not_leak_into_the_ranks():
    outer = {
        "RANK": "5",
        "MASTER_PORT": "1",
        "TORCHELASTIC_RUN_ID": "x",
        "PET_NNODES": "2",
        "PATH": "/bin",
        "OMP_NUM_THREADS": "4",
    }
    env = rank_environment(outer)
    assert env["PATH"] == "/bin"
    assert env["OMP_NUM_THREADS"] == "4"
    assert not {"RANK", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PET_NNODES"} & set(env)
    assert rank_environment({})["OMP_NUM_THREADS"] == "1"


def test_cut_off_checkpoint_is_no_checkpoint(tmp_path):
    for step, whole in ((5, True), (10, True), (15, False)):
        folder = tmp_path / "checkpoint" / f"step-{step}"
        folder.mkdir(parents=True)
        if whole:
            (folder / "complete.json").write_text("{}")
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoint" / "step-10"
    assert latest_checkpoint(tmp_path / "nowhere") is None
