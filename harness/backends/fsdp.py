"""PyTorch FSDP1: `FullyShardedDataParallel`, one flat parameter per unit."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy

from harness.backends.engine import Parts
from harness.backends.modules import sharding_units
from harness.backends.optimizer import build_optimizer
from harness.backends.options import FsdpOptions
from harness.backends.probe import Probe
from harness.backends.torch_engine import TorchEngine
from harness.backends.trainer import TrainerSettings, fsdp_config, fsdp_settings
from harness.models.base import VLA
from harness.plan import Cell


class FsdpEngine(TorchEngine):
    def _reduction(self, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self.net.no_sync()

    def _clip(self) -> float:
        # The norm of flat shards needs FSDP1's own reduction. Without clipping it is asked for an infinite bound,
        # which multiplies gradients by exactly one.
        return float(self.net.clip_grad_norm_(self.cell.clip or float("inf")))

    def sharded_units(self) -> int:
        return len(FullyShardedDataParallel.fsdp_modules(self.net))

    def _reduce_dtype(self) -> torch.dtype:
        own: torch.dtype = next(self.net.parameters()).dtype
        return self.net.mixed_precision.reduce_dtype or own


def build(model: VLA, cell: Cell, device: torch.device) -> FsdpEngine:
    assert isinstance(cell.backend, FsdpOptions)
    probe = Probe.of(model)
    units = {id(unit) for unit in sharding_units(model)} if cell.backend.wrap == "layers" else set()
    net = FullyShardedDataParallel(
        model,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=CustomPolicy(lambda module: id(module) in units),
        mixed_precision=_policy(cell),
        device_id=device,
        use_orig_params=True,
    )
    optimizer = build_optimizer(net.parameters(), cell.optimizer, device)
    return FsdpEngine(Parts(net, net, optimizer, probe), cell, device)


def trainer_settings(cell: Cell, model: VLA) -> TrainerSettings:
    """FSDP1 through accelerate's plugin, sharded checkpoints: full ones end in a crash on CPU (Lightning issue 21804).

    Weights are equal on all ranks already, and `sync_module_states` would need an accelerator.
    """
    assert isinstance(cell.backend, FsdpOptions)
    config = fsdp_config(model, 1, cell.backend.wrap, "sharded", cell.activation_checkpointing)
    config |= {"reshard_after_forward": "full_shard", "use_orig_params": True, "sync_module_states": False}
    return fsdp_settings(config, _policy(cell), version("transformers"))


def _policy(cell: Cell) -> MixedPrecision:
    return MixedPrecision(
        param_dtype=torch.bfloat16 if cell.precision == "bf16" else torch.float32,
        reduce_dtype=torch.float32,
        buffer_dtype=torch.float32,
        # Inputs are the model's to cast: every backend must run the same computation.
        cast_forward_inputs=False,
        cast_root_forward_inputs=False,
    )


ENGINE = FsdpEngine
