"""The six backends under real torchrun: the same computation, really sharded, resumable, exported alike."""

from __future__ import annotations

import os
from pathlib import Path

import native_runs as native
import pytest
import torch
from safetensors.torch import load_file

from harness.plan import RunKind
from harness.train.journal import latest_checkpoint
from harness.train.launch import read_steps
from harness.train.records import Outcome, RunRecord

STEPS = 8
SETTINGS = {"accumulation": 2, "optimizer": {"eps": 1e-4, "schedule": "cosine", "warmup_steps": 2}}
"""Adam divides by the gradient's size plus eps: a large eps keeps the noise of zero gradients out of the weights."""


class Done:
    """A finished run: its record, its folder, its rows."""

    def __init__(self, record: RunRecord, folder: Path) -> None:
        assert record.outcome is Outcome.OK, record.failure
        self.record, self.folder, self.rows = record, folder, read_steps(folder)

    @property
    def losses(self) -> list[float]:
        return [row.loss for row in self.rows]

    @property
    def norms(self) -> list[float]:
        return [row.gradient_norm for row in self.rows]


def train(folder: Path, backend: str, **settings) -> Done:
    order = native.spec(
        folder, native.cell(backend, **settings), kind=RunKind.LEARNING, steps=STEPS, checkpoint_every=4
    )
    return Done(native.run(order), folder)


# Six process groups start one after the other, which takes minutes on a machine that has other work.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Done]:
    """One learning run of each backend, alike in everything else; gradients accumulate over two micro-batches."""
    root = tmp_path_factory.mktemp("parity")
    return {backend: train(root / backend, backend, **SETTINGS) for backend in native.BACKENDS}


@pytest.mark.parametrize("backend", list(native.BACKENDS)[1:])
def test_same_losses_and_gradient_norms(runs, backend):
    reference, other = runs["ddp"], runs[backend]
    assert max(reference.norms) > 1.0, "clipping must bite for this test to mean anything"
    assert other.losses == pytest.approx(reference.losses, abs=1e-5)
    assert other.norms == pytest.approx(reference.norms, rel=1e-5)
    assert reference.losses[0] != reference.losses[-1]


@pytest.mark.parametrize("backend", list(native.BACKENDS))
def test_what_is_in_force_is_what_was_asked(runs, backend):
    record = runs[backend].record
    force = record.in_force
    wrapper = {"ddp": "DistributedDataParallel", "fsdp": "FullyShardedDataParallel", "fsdp2": "FSDPPi0"}
    assert force.wrapper == wrapper.get(backend, "DeepSpeedEngine")
    assert force.parameter_class == ("DTensor" if backend == "fsdp2" else "Parameter")
    assert force.sharded_units == (3 if backend in ("fsdp", "fsdp2") else 0)  # two layers and the root
    assert force.zero_stage == {"zero1": 1, "zero2": 2, "zero3": 3}.get(backend)
    assert (force.world_size, force.collective_backend) == (2, "gloo")
    assert (force.micro_batch, force.accumulation, force.clip) == (4, 2, 1.0)
    assert force.optimizer == record.run.cell.optimizer
    assert force.optimizer_class == "torch.optim.adamw.AdamW"
    assert {force.parameter_dtype, force.master_dtype, force.reduce_dtype} == {"float32"}
    assert not force.activation_checkpointing


@pytest.mark.parametrize("backend", list(native.BACKENDS))
def test_each_rank_holds_its_share(runs, backend):
    shards = runs[backend].record.memory.shards
    workload = runs[backend].record.workload
    whole, trained = 4 * workload.parameters, 4 * workload.trainable_parameters
    held = sum(shard.parameter_bytes for shard in shards)
    assert held == pytest.approx(whole if backend in native.SHARDED else 2 * whole, rel=0.02)
    # Adam's two moments; DeepSpeed also keeps a master copy apart from the parameters.
    copies = 3 if backend.startswith("zero") else 2
    ranks_with_all = 2 if backend == "ddp" else 1
    assert sum(shard.optimizer_bytes for shard in shards) == pytest.approx(copies * trained * ranks_with_all, rel=0.02)


def test_runs_are_comparable(runs):
    workloads = [done.record.workload for done in runs.values()]
    assert all(workload == workloads[0] for workload in workloads)


@pytest.mark.parametrize("backend", list(native.BACKENDS)[1:])
def test_exports_hold_the_same_weights(runs, backend):
    reference, other = (load_file(runs[name].folder / "export" / "model.safetensors") for name in ("ddp", backend))
    assert list(other) == list(reference)
    assert all(tensor.dtype is torch.float32 for tensor in other.values())
    assert max(float((other[name] - reference[name]).abs().max()) for name in reference) < 2e-5


def test_records_are_complete(runs):
    for backend, done in runs.items():
        assert [row.step for row in done.rows] == list(range(STEPS)), backend
        assert done.record.export == "export"
        assert done.record.speed.measured_steps == STEPS - 2
        assert done.record.checkpoint_bytes > 4 * done.record.workload.parameters
        assert latest_checkpoint(done.folder).name == "step-8"
        assert [folder.name for folder in (done.folder / "checkpoint").iterdir()] == ["step-8"]


RESUMED = ["fsdp2", *(pytest.param(b, marks=pytest.mark.full) for b in native.BACKENDS if b != "fsdp2")]


@pytest.mark.parametrize("backend", RESUMED)
def test_killed_run_resumes_bit_for_bit(runs, backend, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.setenv("FAULT", "kill 1 6")
    chosen = native.cell(backend, **SETTINGS)
    order = native.spec(tmp_path / "attempt-1", chosen, kind=RunKind.LEARNING, steps=STEPS, checkpoint_every=4)
    killed = native.run(order, worker="sabotage")
    assert (killed.outcome, killed.failure.rank, killed.failure.exit_code) == (Outcome.CRASHED, 1, -9)
    assert "killed by signal 9" in killed.failure.reason

    checkpoint = latest_checkpoint(tmp_path / "attempt-1")
    assert checkpoint.name == "step-4"
    again = order.model_copy(
        update={"attempt": 2, "folder": str(tmp_path / "attempt-2"), "resume_from": str(checkpoint)}
    )
    resumed = Done(native.run(again), tmp_path / "attempt-2")
    assert [row.resumed for row in resumed.rows] == [True] * 4 + [False] * 4
    assert resumed.losses == runs[backend].losses
    assert resumed.norms == runs[backend].norms
    assert resumed.record.checkpoint_load_seconds > 0


@pytest.mark.full
@pytest.mark.parametrize("backend", list(native.BACKENDS))
def test_bf16_regime(runs, backend, tmp_path):
    done = train(tmp_path, backend, precision="bf16", **SETTINGS)
    force = done.record.in_force
    assert (force.parameter_dtype, force.master_dtype, force.reduce_dtype) == ("bfloat16", "float32", "float32")
    assert done.losses == pytest.approx(runs["ddp"].losses, abs=0.02)
    assert done.losses[0] != runs["ddp"].losses[0]


@pytest.mark.full
@pytest.mark.parametrize("backend", list(native.BACKENDS))
def test_activation_checkpointing_changes_no_loss(runs, backend, tmp_path):
    done = train(tmp_path, backend, activation_checkpointing=True, **SETTINGS)
    assert done.record.in_force.activation_checkpointing
    assert done.losses == pytest.approx(runs["ddp"].losses, abs=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["fsdp", "fsdp2"])
def test_root_wrapping(runs, backend, tmp_path):
    done = train(tmp_path, backend, backend={"backend": backend, "wrap": "root"}, **SETTINGS)
    assert done.record.in_force.sharded_units == 1
    assert done.losses == pytest.approx(runs["ddp"].losses, abs=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("backend", list(native.BACKENDS))
def test_sgd_without_clipping(backend, tmp_path):
    """Adam hides a wrong gradient scale; plain gradient descent does not."""
    settings = {"optimizer": {"name": "sgd", "lr": 0.05}, "clip": 0.0, "accumulation": 2}
    done = train(tmp_path / backend, backend, **settings)
    reference = done if backend == "ddp" else train(tmp_path / "ddp", "ddp", **settings)
    assert done.record.in_force.clip == 0.0
    assert done.losses == pytest.approx(reference.losses, abs=1e-5)
    assert max(done.norms) > 1.0
