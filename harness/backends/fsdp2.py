"""PyTorch FSDP2: `fully_shard`, every parameter a DTensor sharded over its first dimension."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from harness.backends.modules import sharding_units
from harness.backends.optimizer import build_optimizer
from harness.backends.options import Fsdp2Options
from harness.backends.torch_engine import TorchEngine
from harness.models.base import VLA
from harness.plan import Cell


class Fsdp2Engine(TorchEngine):
    def __init__(self, model: VLA, cell: Cell, device: torch.device) -> None:
        super().__init__(model, cell, device)
        assert isinstance(cell.backend, Fsdp2Options)
        options: dict[str, Any] = {
            "mesh": init_device_mesh(device.type, (dist.get_world_size(),)),
            "reshard_after_forward": cell.backend.reshard_after_forward,
            "mp_policy": MixedPrecisionPolicy(
                param_dtype=torch.bfloat16 if cell.precision == "bf16" else torch.float32,
                reduce_dtype=torch.float32,
                # Inputs are the model's to cast: every backend must run the same computation.
                cast_forward_inputs=False,
            ),
        }
        if cell.backend.wrap == "layers":
            for unit in sharding_units(model):
                fully_shard(unit, **options)
        self._root: FSDPModule = fully_shard(model, **options)
        self.net = model
        # Sharding replaces the parameters: an optimizer built before would update tensors nobody uses.
        self.optimizer = build_optimizer(model.parameters(), cell.optimizer, device)

    def _reduction(self, last: bool) -> AbstractContextManager[Any]:
        self._root.set_requires_gradient_sync(last)
        return nullcontext()

    def _sharded_units(self) -> int:
        return sum(isinstance(module, FSDPModule) for module in self.net.modules())

    def _reduce_dtype(self) -> torch.dtype:
        policy = self._root._get_fsdp_state()._mp_policy
        return policy.reduce_dtype or policy.param_dtype or next(self.net.parameters()).dtype


def build(model: VLA, cell: Cell, device: torch.device) -> Fsdp2Engine:
    return Fsdp2Engine(model, cell, device)
