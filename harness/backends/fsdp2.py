"""PyTorch FSDP2: `fully_shard`, every parameter a DTensor sharded over its first dimension."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from harness.backends.engine import Parts
from harness.backends.modules import own_name, sharding_units
from harness.backends.optimizer import build_optimizer
from harness.backends.options import DTYPES, Fsdp2Options
from harness.backends.probe import Probe
from harness.backends.torch_engine import TorchEngine
from harness.backends.trainer import TrainerSettings, fsdp_config, fsdp_settings
from harness.models.base import VLA
from harness.plan import Cell


class Fsdp2Engine(TorchEngine):
    def _reduction(self, last: bool) -> AbstractContextManager[Any]:
        self.net.set_requires_gradient_sync(last)
        return nullcontext()

    def sharded_units(self) -> int:
        return sum(isinstance(module, FSDPModule) for module in self.net.modules())

    def _reduce_dtype(self) -> torch.dtype:
        policy = self.net._get_fsdp_state()._mp_policy
        return policy.reduce_dtype or policy.param_dtype or next(self.net.parameters()).dtype


def build(model: VLA, cell: Cell, device: torch.device) -> Fsdp2Engine:
    options = cell.backend
    assert isinstance(options, Fsdp2Options)
    probe = Probe.of(model)
    whole = _set_aside(model) if options.meta_init else None
    how: dict[str, Any] = {
        "mesh": _mesh(options, device),
        "offload_policy": _offload(options, device),
    }
    if options.reshard_after_forward is not None:  # torch 2.6 knows no None; its default is the same rule
        how["reshard_after_forward"] = options.reshard_after_forward
    policy = _policy(cell)
    if options.wrap == "layers":
        for unit in sharding_units(model):
            # What one unit returns the next one computes with: only the root's output gets a dtype of its own.
            fully_shard(unit, mp_policy=replace(policy, output_dtype=None), **how)
    fully_shard(model, mp_policy=policy, **how)
    if whole is not None:
        _fill(model, whole, torch.device("cpu") if options.cpu_offload else device)
    # Sharding replaces the parameters: an optimizer built before would update tensors nobody uses.
    optimizer = build_optimizer(model.parameters(), cell.optimizer, device)
    return Fsdp2Engine(Parts(model, model, optimizer, probe), cell, device)


def trainer_settings(cell: Cell, model: VLA) -> TrainerSettings:
    """FSDP2 through accelerate, by the Trainer's own arguments or, before transformers 5, by the environment."""
    options = cell.backend
    assert isinstance(options, Fsdp2Options)
    config = fsdp_config(model, 2, options.wrap, options.trainer_checkpoint, cell.activation_checkpointing)
    config |= {"reshard_after_forward": options.reshard_after_forward is not False}
    config |= {"cpu_offload": True} if options.cpu_offload else {}
    return fsdp_settings(config, _policy(cell), version("transformers"))


def _policy(cell: Cell) -> MixedPrecisionPolicy:
    """Inputs are the model's to cast, unless the cell says otherwise: every backend must run the same computation."""
    options = cell.backend
    assert isinstance(options, Fsdp2Options)
    return MixedPrecisionPolicy(
        param_dtype=_dtype(options.param_dtype or cell.precision),
        reduce_dtype=_dtype(options.reduce_dtype),
        output_dtype=None if options.output_dtype is None else _dtype(options.output_dtype),
        cast_forward_inputs=options.cast_forward_inputs,
    )


def _dtype(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, DTYPES[name])
    return dtype


def _mesh(options: Fsdp2Options, device: torch.device) -> DeviceMesh:
    """One dimension to shard over; with replicas two (HSDP): gradients are summed over the first, too."""
    ranks = dist.get_world_size()
    if options.replicas == 1:
        return init_device_mesh(device.type, (ranks,), mesh_dim_names=("shard",))
    shape = (options.replicas, ranks // options.replicas)
    return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))


def _offload(options: Fsdp2Options, device: torch.device) -> OffloadPolicy:
    # Pinned memory needs an accelerator (pin_memory=True raises without one).
    return CPUOffloadPolicy(pin_memory=device.type != "cpu") if options.cpu_offload else OffloadPolicy()


def _set_aside(model: nn.Module) -> dict[str, Tensor]:
    """Rank 0's parameters and buffers, non-persistent ones too; the model itself goes to `meta`, on every rank."""
    state = [*model.named_parameters(), *model.named_buffers()] if dist.get_rank() == 0 else []
    copies = {own_name(name): tensor.detach().clone() for name, tensor in state}
    model.to("meta")
    return copies


def _fill(model: nn.Module, whole: dict[str, Tensor], device: torch.device) -> None:
    """Allocates a sharded model and gives each rank its part of rank 0's weights.

    `to_empty` alone leaves garbage, and initialising DTensors draws the same numbers on every rank of a CPU mesh.
    A state dict does not carry non-persistent buffers, such as rotary frequencies: they are sent one by one.
    """
    model.to_empty(device=device)
    buffers = {own_name(name): buffer for name, buffer in model.named_buffers()}
    parameters: dict[str, Any] = {name: tensor for name, tensor in whole.items() if name not in buffers}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    set_model_state_dict(model, parameters, options=options)
    for name, buffer in buffers.items():
        if dist.get_rank() == 0:
            buffer.copy_(whole[name])
        dist.broadcast(buffer, src=0)


ENGINE = Fsdp2Engine
