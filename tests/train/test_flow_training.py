"""pi05 and dm0 in real process groups: alike under every backend, in both layouts, with and without frozen parts."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import native_runs as native
import pytest
import torch

from harness.models import build
from harness.train.launch import read_steps
from harness.train.records import Outcome, RunRecord

STEPS = 10
SETTINGS = {"optimizer": {"eps": 1e-4}}
"""Adam divides by the gradient's size plus eps: a large eps keeps the noise of zero gradients out of the weights."""

# Process groups start one after the other, which takes minutes on a machine that has other work.
pytestmark = pytest.mark.timeout(1800)


def train(folder: Path, model: str, backend: str, **settings: Any) -> tuple[RunRecord, list[float]]:
    """A finished run of the tiny model, and its losses."""
    cell = native.cell(backend, label=f"{model}/{backend}", model=model, **SETTINGS | settings)
    record = native.run(native.spec(folder, cell, steps=STEPS))
    assert record.outcome is Outcome.OK, record.failure
    return record, [row.loss for row in read_steps(folder)]


def parameters_of(model: str, part: str) -> int:
    with torch.device("meta"):
        modules = build(model, "tiny").parts()[part]
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def test_dm0_learns_sharded_recomputed_and_with_its_tower_frozen(tmp_path):
    """The Perception Encoder as units of their own that hold nothing to train."""
    record, losses = train(tmp_path, "dm0", "fsdp2", frozen=["vision"], activation_checkpointing=True)
    assert fmean(losses[-3:]) < fmean(losses[:3])
    assert record.in_force.activation_checkpointing
    assert record.in_force.sharded_units == 5  # two joint layers, two of the tower, the root
    with torch.device("meta"):
        unfrozen = build("dm0", "tiny").parameters()
    trained = sum(parameter.numel() for parameter in unfrozen if parameter.requires_grad)
    assert record.workload.trainable_parameters == trained - parameters_of("dm0", "vision")


@pytest.fixture(scope="module")
def under_ddp(tmp_path_factory) -> dict[str, list[float]]:
    root = tmp_path_factory.mktemp("ddp")
    return {model: train(root / model, model, "ddp")[1] for model in ("pi05", "dm0")}


@pytest.mark.full
@pytest.mark.parametrize("backend", list(native.BACKENDS)[1:])
@pytest.mark.parametrize("model", ["pi05", "dm0"])
def test_same_losses_under_every_backend(under_ddp, model, backend, tmp_path):
    _, losses = train(tmp_path, model, backend)
    assert losses == pytest.approx(under_ddp[model], abs=1e-5)
    assert fmean(losses[-3:]) < fmean(losses[:3])


@pytest.mark.full
@pytest.mark.parametrize("backend", ["ddp", "fsdp", "fsdp2", "zero3"])
@pytest.mark.parametrize("model", ["pi05", "dm0"])
def test_raw_layout_trains_alike_with_the_root_as_only_unit(under_ddp, model, backend, tmp_path):
    record, losses = train(tmp_path, model, backend, layout="raw")
    assert losses == pytest.approx(under_ddp[model], abs=1e-5)
    assert record.in_force.sharded_units == (1 if backend in ("fsdp", "fsdp2") else 0)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["ddp", "fsdp2", "zero3"])
@pytest.mark.parametrize("layout", ["joint", "raw"])
def test_recomputation_in_either_layout_changes_no_loss(under_ddp, layout, backend, tmp_path):
    record, losses = train(tmp_path, "dm0", backend, layout=layout, activation_checkpointing=True)
    assert losses == pytest.approx(under_ddp["dm0"], abs=1e-5)
    # Asked for in both, in effect in one: `raw` calls no layer that could be recomputed.
    assert record.in_force.activation_checkpointing is (layout == "joint")


@pytest.fixture(scope="module")
def frozen_under_ddp(tmp_path_factory) -> list[float]:
    return train(tmp_path_factory.mktemp("frozen"), "dm0", "ddp", frozen=["vlm"])[1]


@pytest.mark.full
@pytest.mark.parametrize("backend", list(native.BACKENDS)[1:])
def test_a_frozen_vlm_is_counted_and_trains_alike(frozen_under_ddp, under_ddp, backend, tmp_path):
    record, losses = train(tmp_path, "dm0", backend, frozen=["vlm"])
    assert record.workload.trainable_parameters == parameters_of("dm0", "action")
    assert losses == pytest.approx(frozen_under_ddp, abs=1e-5)
    assert losses[-1] != pytest.approx(under_ddp["dm0"][-1], abs=1e-5)
