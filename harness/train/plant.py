"""Faults put into a run on purpose (`harness drill`). The only place where a run is made worse than it is.

A run without a plant passes through here untouched: `planted` hands back the very engine it was given.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn

from harness.backends.base import Engine
from harness.data.batch import Batch
from harness.plan import Plant
from harness.train.facts import InForce, ShardBytes
from harness.train.phases import PhaseClock

MIB = 2**20


def plant_gradient(model: nn.Module, plant: Plant | None, rank: int) -> None:
    """Turns the first rank's gradients around; the loss keeps its value. Called before a backend takes the model."""
    if plant is not None and plant.kind == "gradient" and rank == 0:
        model.register_forward_hook(_turned)


def _turned(_module: nn.Module, _inputs: object, loss: torch.Tensor) -> torch.Tensor:
    return 2 * loss.detach() - loss


def planted(engine: Engine, plant: Plant | None, device: torch.device) -> Engine:
    """The engine with its fault; the engine itself where there is none, or one that is in the model."""
    if plant is None or plant.kind == "gradient":
        return engine
    return PlantedEngine(engine, plant, device)


class PlantedEngine:
    """An engine whose steps last longer by a share, or that holds memory it does not need."""

    def __init__(self, engine: Engine, plant: Plant, device: torch.device) -> None:
        self._engine, self._device = engine, device
        self._share = plant.amount if plant.kind == "sleep" else 0.0
        size = int(plant.amount * MIB) if plant.kind == "ballast" else 0
        self._ballast = torch.ones(size, dtype=torch.uint8, device=device)  # ones: every page is really there
        self._began: float | None = None

    def split(self, clock: PhaseClock) -> None:
        self._engine.split(clock)

    def backward(self, batch: Batch, last: bool) -> torch.Tensor:
        if self._began is None:
            self._began = time.perf_counter()
        return self._engine.backward(batch, last)

    def step(self, learning_rate: float) -> float:
        norm = self._engine.step(learning_rate)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        if self._began is not None:
            time.sleep(self._share * (time.perf_counter() - self._began))
        self._began = None
        return norm

    def save(self, folder: Path) -> None:
        self._engine.save(folder)

    def load(self, folder: Path) -> None:
        self._engine.load(folder)

    def export(self, file: Path) -> None:
        self._engine.export(file)

    def shard_bytes(self) -> ShardBytes:
        return self._engine.shard_bytes()

    def in_force(self) -> InForce:
        return self._engine.in_force()
