"""The real worker with a fault planted in one rank. `FAULT` says which: "raise 1 3" is rank 1, before its step 3.

The model "stub" stands for a tiny one that loads without transformers.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable

from harness.processes import die_with_parent, parent_from_environment
from harness.train import worker

if __name__ == "__main__":
    die_with_parent(parent_from_environment())

import torch
from torch import Tensor, nn

from harness.backends.profile import FSDPProfile
from harness.data.batch import Batch
from harness.data.shape import InputShape
from harness.train.memory import limit_address_space

SHAPE = InputShape(
    cameras=("agentview",), image_size=8, text_slots=4, vocabulary=16, state_dim=8, action_dim=7, chunk=2
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x)


class Stub(nn.Module):
    """As much of a `VLA` as training asks for."""

    profile = FSDPProfile(("Block",))
    tokens_definition = "one per sample"
    shape = SHAPE

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.last = nn.Linear(8, 16), Block(), nn.Linear(16, 14)

    def forward(self, batch: Batch) -> Tensor:
        hidden = self.block(self.first(batch.observation.state))
        return (self.last(hidden) - batch.actions.flatten(1)).square().mean()

    def tokens_per_sample(self) -> int:
        return 1

    def freeze(self, names: Iterable[str]) -> None:
        assert not names


KIND, RANK, STEP = os.environ["FAULT"].split()
REAL_BUILD, REAL_SHAPE, RealBatches = worker.build, worker.input_shape, worker.Batches
REAL_BUILD_ON_META = worker.build_on_meta


def on_meta() -> Stub:
    with torch.device("meta"):
        return Stub()


class FaultyBatches(RealBatches):
    def at(self, step: int, micro_step: int) -> Batch:
        batch = super().at(step, micro_step)
        if sys._getframe(1).f_code.co_name == "sha256":
            return batch
        if KIND == "slow":
            time.sleep(0.2)
        if self.rank == int(RANK) and step == int(STEP):
            if KIND == "raise":
                raise ValueError("planted by the test")
            if KIND == "memory":
                limit_address_space(2**26)
                bytearray(2**30)
            if KIND == "exit":
                raise SystemExit(7)
            if KIND == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if KIND == "sleep":
                time.sleep(1000)
            if KIND == "nan":
                batch.actions[:] = float("nan")
        return batch


worker.Batches = FaultyBatches
worker.build = lambda model, *rest: Stub() if model == "stub" else REAL_BUILD(model, *rest)
worker.build_on_meta = lambda model, *rest: on_meta() if model == "stub" else REAL_BUILD_ON_META(model, *rest)
worker.input_shape = lambda model, size: SHAPE if model == "stub" else REAL_SHAPE(model, size)

if __name__ == "__main__":
    worker.main()
