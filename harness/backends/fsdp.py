"""PyTorch FSDP1: `FullyShardedDataParallel`, one flat parameter per unit."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy

from harness.backends.modules import sharding_units
from harness.backends.optimizer import build_optimizer
from harness.backends.options import FsdpOptions
from harness.backends.torch_engine import TorchEngine
from harness.models.base import VLA
from harness.plan import Cell


class FsdpEngine(TorchEngine):
    net: FullyShardedDataParallel

    def __init__(self, model: VLA, cell: Cell, device: torch.device) -> None:
        super().__init__(model, cell, device)
        assert isinstance(cell.backend, FsdpOptions)
        units = {id(unit) for unit in sharding_units(model)} if cell.backend.wrap == "layers" else set()
        compute = torch.bfloat16 if cell.precision == "bf16" else torch.float32
        self.net = FullyShardedDataParallel(
            model,
            sharding_strategy=ShardingStrategy.FULL_SHARD,
            auto_wrap_policy=CustomPolicy(lambda module: id(module) in units),
            mixed_precision=MixedPrecision(
                param_dtype=compute,
                reduce_dtype=torch.float32,
                buffer_dtype=torch.float32,
                # Inputs are the model's to cast: every backend must run the same computation.
                cast_forward_inputs=False,
                cast_root_forward_inputs=False,
            ),
            device_id=device,
            use_orig_params=True,
        )
        self.model = self.net
        self.optimizer = build_optimizer(self.net.parameters(), cell.optimizer, device)

    def _reduction(self, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self.net.no_sync()

    def _clip(self) -> float:
        # The norm of flat shards needs FSDP1's own reduction. Without clipping it is asked for an infinite bound,
        # which multiplies gradients by exactly one.
        return float(self.net.clip_grad_norm_(self.cell.clip or float("inf")))

    def _sharded_units(self) -> int:
        return len(FullyShardedDataParallel.fsdp_modules(self.net))

    def _reduce_dtype(self) -> torch.dtype:
        return self.net.mixed_precision.reduce_dtype or next(self.net.parameters()).dtype


def build(model: VLA, cell: Cell, device: torch.device) -> FsdpEngine:
    return FsdpEngine(model, cell, device)
