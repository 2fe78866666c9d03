"""cogact under each backend: it learns, alike, and what is exported acts like what was trained."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import native_runs as native
import numpy as np
import pytest

from harness.plan import EpisodeKey, RunKind
from harness.policies.base import Look
from harness.policies.checkpoint import CheckpointPolicy
from harness.train.launch import read_steps
from harness.train.records import Outcome

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

STEPS = 20


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict:
    root = tmp_path_factory.mktemp("cogact")
    for backend in native.BACKENDS:
        cell = native.cell(backend, label=f"cogact/{backend}", model="cogact", size="micro", optimizer={"eps": 1e-4})
        record = native.run(native.spec(root / backend, cell, kind=RunKind.LEARNING, steps=STEPS))
        assert record.outcome is Outcome.OK, record.failure
    return {backend: root / backend for backend in native.BACKENDS}


def losses(folder) -> list[float]:
    return [row.loss for row in read_steps(folder)]


def acted(folder) -> np.ndarray:
    """What the exported policy does when shown noise."""
    policy = CheckpointPolicy(folder / "export")
    random = np.random.default_rng(0)
    cameras = policy.card.cameras
    look = Look(
        key=EpisodeKey(task_suite="libero_object", task=0, initial_state=0, seed=0),
        replan=0,
        images={camera: random.integers(0, 255, (64, 64, 3), dtype=np.uint8) for camera in cameras},
        state=random.normal(size=8),
        prompt="pick up the soup",
        seed=0,
    )
    return policy.act([look])[0]


@pytest.mark.parametrize("backend", list(native.BACKENDS))
def test_its_loss_falls(folders, backend):
    found = losses(folders[backend])
    assert len(found) == STEPS
    assert fmean(found[-5:]) < 0.9 * fmean(found[:5])


@pytest.mark.parametrize("backend", list(native.BACKENDS)[1:])
def test_it_learns_as_under_ddp(folders, backend):
    assert losses(folders[backend]) == pytest.approx(losses(folders["ddp"]), abs=1e-4)
    np.testing.assert_allclose(acted(folders[backend]), acted(folders["ddp"]), atol=5e-3)


@pytest.fixture
def tower_losses(monkeypatch, tmp_path):
    """Losses of a few steps with a CLIP tower, whose last layer never runs, by backend."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "models"))

    def train(backend: str) -> list[float]:
        cell = native.cell(
            backend, label=f"tower/{backend}", model="published:cogact", size="small", optimizer={"eps": 1e-4}
        )
        record = native.run(native.spec(tmp_path / backend, cell, kind=RunKind.LEARNING, steps=4))
        assert record.outcome is Outcome.OK, record.failure
        return losses(tmp_path / backend)

    return train


@pytest.mark.parametrize("backend", ["fsdp", "fsdp2", "zero3"])
def test_a_layer_that_never_runs_does_no_harm(tower_losses, backend):
    assert tower_losses(backend) == pytest.approx(tower_losses("ddp"), abs=1e-5)
