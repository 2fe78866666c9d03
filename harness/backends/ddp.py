"""PyTorch `DistributedDataParallel`: replicated parameters, gradients averaged by bucketed all-reduce."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from harness.backends.engine import Parts
from harness.backends.modules import held_bytes
from harness.backends.optimizer import build_optimizer
from harness.backends.probe import Probe
from harness.backends.torch_engine import TorchEngine
from harness.backends.trainer import TrainerSettings
from harness.data.batch import Batch
from harness.models.base import VLA
from harness.plan import Cell


class BFloat16Forward(nn.Module):
    """Runs a float32 model with its parameters cast to bfloat16: FSDP2's `param_dtype` regime, without sharding.

    Gradients come back through the cast, so they are reduced and accumulated in float32. (`torch.autocast` would
    keep norms and softmax in float32, which is another computation than the other backends'.)
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        cast = {
            name: parameter.bfloat16()
            for name, parameter in self.model.named_parameters()
            if parameter.is_floating_point()
        }
        loss: Tensor = torch.func.functional_call(self.model, cast, (batch,))
        return loss


class DdpEngine(TorchEngine):
    def _reduction(self, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self.net.no_sync()

    def _reduce_dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.net.parameters() if p.requires_grad)

    def _gradient_buffer_bytes(self) -> int:
        """The reducer's buckets outlive the gradients, which are views of them."""
        return held_bytes(p for p in self.model.parameters() if p.requires_grad and p.grad is None)


def build(model: VLA, cell: Cell, device: torch.device) -> DdpEngine:
    probe = Probe.of(model)
    inner = BFloat16Forward(model) if cell.precision == "bf16" else model
    net = DistributedDataParallel(
        inner, device_ids=[device.index] if device.type == "cuda" else None, gradient_as_bucket_view=True
    )
    optimizer = build_optimizer(model.parameters(), cell.optimizer, device)
    return DdpEngine(Parts(model, net, optimizer, probe), cell, device)


def trainer_settings(cell: Cell, model: VLA) -> TrainerSettings:  # noqa: ARG001
    """Trainer's default. Every trained parameter is used in every step, so none has to be searched for."""
    return TrainerSettings({"ddp_find_unused_parameters": False})


ENGINE = DdpEngine
