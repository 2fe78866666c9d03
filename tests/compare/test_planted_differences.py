"""Differences planted in real training, one at a time: the audit must name that one and nothing else.

One rank in this process, FSDP2, tiny pi0. Facts come from where they come from in a run: the worker's own description
of model and data, and what the engine reads back after its first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comparison_records import a_run

import harness.backends.modules
from harness.backends import build_engine, fsdp2
from harness.compare.fairness import audit
from harness.data.batch import Batch
from harness.data.dataset import Batches, open_dataset
from harness.models import input_shape
from harness.plan import Cell, PlannedRun, RunKind
from harness.suite import Data
from harness.train.records import RunRecord, RunSpec
from harness.train.worker import Training
from harness.train.world import World

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@dataclass(frozen=True)
class SwappedSample(Batches):
    """The same data, but for two samples of the second batch, which change places."""

    def at(self, step: int, micro_step: int) -> Batch:
        batch = super().at(step, micro_step)
        if step == 1:
            batch.actions[[0, 1]] = batch.actions[[1, 0]]
        return batch


def facts(
    folder: Path,
    *,
    plant: Callable[[torch.nn.Module], object] = lambda model: None,
    plant_late: Callable[[torch.nn.Module], object] = lambda model: None,
    batches: type[Batches] = Batches,
    made_micro_batches: int | None = None,
    **settings: Any,
) -> RunRecord:
    """What a run would record of itself.

    Args:
        plant: done to the model before it is described.
        plant_late: done to it after, before the backend gets it.
        made_micro_batches: how many the loop really makes in the first step; None for as many as asked.
    """
    cell = Cell.model_validate(
        {"label": "x", "model": "pi0", "size": "tiny", "ranks": 1, "micro_batch": 4, "backend": {"backend": "fsdp2"},
         "data": {"source": "synthetic"}} | settings
    )  # fmt: skip
    run = PlannedRun(cell=cell, kind=RunKind.TIMING, repeat=0, training_seed=3, steps=4)
    folder.mkdir(exist_ok=True)
    spec = RunSpec(run=run, attempt=1, seed=3, folder=str(folder), data_folder=None, resume_from=None)
    training = Training(spec, World(0, 1, CPU))
    dataset = open_dataset(Data(source="synthetic"), None, input_shape("pi0", "tiny"))
    source = batches(dataset, 3, 0, 1, cell.micro_batch, cell.accumulation)
    model = training.build_model()
    plant(model)
    workload = training.describe(model, source)
    plant_late(model)
    engine = build_engine(model, cell, CPU)
    made = made_micro_batches or cell.accumulation
    for micro in range(made):
        engine.backward(source.at(0, micro), last=micro == made - 1)
    engine.step(cell.optimizer.lr)
    record = a_run("fsdp2")
    return record.model_copy(update={"workload": workload, "in_force": engine.in_force()})


def named(a: RunRecord, b: RunRecord) -> list[str]:
    return [difference.name for difference in audit(a, b) if difference.blocking]


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> RunRecord:
    return facts(tmp_path_factory.mktemp("clean"))


def test_a_clean_pair_passes(clean, tmp_path):
    assert named(clean, facts(tmp_path)) == []


def test_other_initial_weights(clean, tmp_path):
    def nudge(model: torch.nn.Module) -> None:
        with torch.no_grad():
            next(model.parameters()).flatten()[0] += 1e-6

    assert named(clean, facts(tmp_path, plant=nudge)) == ["initial weights"]


def test_one_sample_swapped(clean, tmp_path):
    assert named(clean, facts(tmp_path, batches=SwappedSample)) == ["data"]


@pytest.mark.parametrize("part", ["embed", "out"])
def test_embeddings_or_the_head_trained_on_one_side_only(clean, tmp_path, part):
    def freeze(model: torch.nn.Module) -> None:
        chosen = [parameter for name, parameter in model.named_parameters() if part in name]
        assert chosen
        chosen[-1].requires_grad_(not chosen[-1].requires_grad)

    assert named(clean, facts(tmp_path, plant=freeze)) == ["trainable parameters"]


def test_other_clipping(clean, tmp_path):
    assert named(clean, facts(tmp_path, clip=0.0)) == ["gradient clipping"]


@pytest.mark.parametrize(("name", "value"), [("beta2", 0.999), ("lr", 2e-3)])
def test_other_optimizer_settings(clean, tmp_path, name, value):
    assert named(clean, facts(tmp_path, optimizer={name: value})) == [f"optimizer {name}"]


@pytest.mark.parametrize(("option", "name"), [("param_dtype", "parameter dtype"), ("reduce_dtype", "reduce dtype")])
def test_other_precision_of_a_part(clean, tmp_path, option, name):
    other = facts(tmp_path, backend={"backend": "fsdp2", option: "bf16"})
    assert named(clean, other) == [name]


def test_a_layer_that_is_not_wrapped(clean, tmp_path, monkeypatch):
    every = fsdp2.sharding_units
    monkeypatch.setattr(fsdp2, "sharding_units", lambda model: every(model)[1:])
    assert named(clean, facts(tmp_path)) == ["wrapped units"]


def test_checkpointing_asked_for_on_both_sides_but_without_effect_on_one(tmp_path, monkeypatch):
    real = facts(tmp_path / "real", activation_checkpointing=True)
    monkeypatch.setattr(harness.backends.modules, "checkpoint_layers", lambda model, *more: None)
    assert named(real, facts(tmp_path / "idle", activation_checkpointing=True)) == ["activation checkpointing"]


def test_no_float32_masters_on_one_side(tmp_path):
    masters = facts(tmp_path / "with", precision="bf16")
    without = facts(tmp_path / "without", precision="bf16", plant_late=lambda model: model.bfloat16())
    assert named(masters, without) == ["master dtype"]


def test_another_effective_batch(tmp_path):
    asked = facts(tmp_path / "asked", accumulation=2)
    assert named(asked, facts(tmp_path / "made", accumulation=2, made_micro_batches=1)) == ["accumulation"]
