from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from harness.data.batch import Batch
from harness.plan import Plant
from harness.train.plant import PlantedEngine, plant_gradient, planted

CPU = torch.device("cpu")


class SlowEngine:
    """As much of an `Engine` as steps need; a step takes 20 ms."""

    def backward(self, batch: Batch | None, last: bool) -> Tensor:
        time.sleep(0.02)
        return torch.zeros(())

    def step(self, learning_rate: float) -> float:
        return 1.0

    def save(self, folder: Path) -> None:
        (folder / "saved").touch()


def seconds_of_a_step(engine: object) -> float:
    started = time.perf_counter()
    engine.backward(None, last=True)  # type: ignore[attr-defined]
    engine.step(0.1)  # type: ignore[attr-defined]
    return time.perf_counter() - started


def test_no_plant_is_the_engine_itself() -> None:
    engine = SlowEngine()
    assert planted(engine, None, CPU) is engine  # type: ignore[arg-type]
    assert planted(engine, Plant(kind="gradient"), CPU) is engine  # type: ignore[arg-type]


def test_sleep_lengthens_every_step_by_its_share(tmp_path: Path) -> None:
    engine = planted(SlowEngine(), Plant(kind="sleep", amount=1.0), CPU)  # type: ignore[arg-type]
    times = [seconds_of_a_step(engine) for _ in range(3)]
    assert min(times) >= 0.04
    engine.save(tmp_path)
    assert (tmp_path / "saved").exists()


def test_ballast_is_really_held() -> None:
    engine = planted(SlowEngine(), Plant(kind="ballast", amount=3.0), CPU)  # type: ignore[arg-type]
    assert isinstance(engine, PlantedEngine)
    assert engine._ballast.untyped_storage().nbytes() == 3 * 2**20


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, -1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * x).square().mean()


@pytest.mark.parametrize(("rank", "sign"), [(0, -1.0), (1, 1.0)])
def test_a_turned_gradient_keeps_the_loss_and_is_the_first_ranks_alone(rank: int, sign: float) -> None:
    x, plain, turned = torch.tensor([1.0, 3.0]), Loss(), Loss()
    plant_gradient(turned, Plant(kind="gradient"), rank)
    losses = [model(x) for model in (plain, turned)]
    for loss in losses:
        loss.backward()
    assert losses[1].item() == pytest.approx(losses[0].item())
    assert plain.weight.grad is not None and turned.weight.grad is not None
    assert torch.equal(turned.weight.grad, sign * plain.weight.grad)
