"""What the training loop asks of a backend once it is built."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

from harness.data.batch import Batch
from harness.train.facts import InForce, ShardBytes
from harness.train.phases import PhaseClock


class Trained(Protocol):
    """A model in training on either stack, as its checkpoints and its report see it."""

    def save(self, folder: Path) -> None:
        """Writes parameters, optimizer and generator states of all ranks. Every rank calls it."""
        ...

    def load(self, folder: Path) -> None: ...

    def export(self, file: Path) -> None:
        """Whole float32 parameters as safetensors, the same names under every backend. Rank 0 writes."""
        ...

    def shard_bytes(self) -> ShardBytes:
        """Bytes of parameters, gradients and optimizer state this rank holds now."""
        ...

    def in_force(self) -> InForce: ...


class Engine(Trained, Protocol):
    """A model under one backend, with its optimizer. The loop calls `backward` once per micro-batch, then `step`."""

    def split(self, clock: PhaseClock) -> None:
        """From now on tells the clock when a forward and when a backward has ended."""
        ...

    def backward(self, batch: Batch, last: bool) -> torch.Tensor:
        """Forward and backward of one micro-batch; `last` says that `step` follows.

        Returns the micro-batch's own mean loss on this rank: float32 scalar, detached, not divided by accumulation.
        """
        ...

    def step(self, learning_rate: float) -> float:
        """Clips, updates, clears gradients. Returns the global gradient norm before clipping."""
        ...
