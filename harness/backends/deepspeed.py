"""DeepSpeed ZeRO 1, 2 and 3 around a torch optimizer; every option that matters is written out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.backends.engine import BaseEngine
from harness.backends.modules import held_bytes
from harness.backends.optimizer import build_optimizer
from harness.backends.options import DeepSpeedOptions
from harness.models.base import VLA
from harness.plan import Cell

_TAG = "state"
_NEVER = 10**9

_MASTERS = {
    "DeepSpeedZeroOptimizer": "single_partition_of_fp32_groups",
    "DeepSpeedZeroOptimizer_Stage3": "fp32_partitioned_groups_flat",
    "BF16_Optimizer": "fp32_groups_flat_partition",
}
"""DeepSpeed's optimizer class → its attribute with this rank's float32 masters (read in 0.19.8)."""

_GRADIENT_BUFFERS = {
    "DeepSpeedZeroOptimizer_Stage3": "grad_partitions_flat_buffer",
    "BF16_Optimizer": "fp32_groups_gradients_flat",
}
"""DeepSpeed's optimizer class → its attribute with gradient memory kept between steps."""


def config_of(cell: Cell, on_cuda: bool) -> dict[str, Any]:
    """The DeepSpeed config of a cell.

    `gradient_clipping` is always present: from 0.19.3 on its absence means 1.0, before it meant off (DeepSpeed pull
    request 8068). Gradients are reduced and accumulated in float32 as in the other backends.
    """
    options = cell.backend
    assert isinstance(options, DeepSpeedOptions)
    zero: dict[str, Any] = {
        "stage": options.zero_stage,
        "reduce_bucket_size": options.reduce_bucket_size,
        "allgather_bucket_size": options.allgather_bucket_size,
        "contiguous_gradients": True,
        "overlap_comm": on_cuda,
    }
    if options.zero_stage == 3:
        zero |= {
            "stage3_param_persistence_threshold": options.param_persistence_threshold,
            "stage3_max_live_parameters": options.max_live_parameters,
            "stage3_prefetch_bucket_size": min(options.max_live_parameters, options.allgather_bucket_size),
            "memory_efficient_linear": options.memory_efficient_linear,
        }
    return {
        "train_micro_batch_size_per_gpu": cell.micro_batch,
        "gradient_accumulation_steps": cell.accumulation,
        "gradient_clipping": cell.clip,
        "zero_optimization": zero,
        "bf16": {"enabled": cell.precision == "bf16"},
        "communication_data_type": "fp32",
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": _NEVER,
    }


class DeepSpeedEngine(BaseEngine):
    def __init__(self, model: VLA, cell: Cell, device: torch.device) -> None:
        super().__init__(model, cell, device)
        deepspeed = _import_deepspeed(device)
        self.optimizer = build_optimizer(model.parameters(), cell.optimizer, device)
        self.net, self._zero, _, _ = deepspeed.initialize(
            model=model,
            optimizer=self.optimizer,
            config=config_of(cell, on_cuda=device.type == "cuda"),
            dist_init_required=False,
        )
        self._engine: Any = self.net

    def _differentiate(self, loss: Tensor, last: bool) -> None:
        self._engine.backward(loss)
        if not last:
            self._engine.step()  # only counts the micro-batch

    def _update(self) -> float:
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    def _save_state(self, folder: Path) -> None:
        self._engine.save_checkpoint(str(folder), tag=_TAG)

    def _load_state(self, folder: Path) -> None:
        self._engine.load_checkpoint(str(folder), tag=_TAG)

    def _whole_state(self) -> dict[str, Tensor]:
        module = self._engine.module
        kept = set(module.state_dict())
        state = {name: buffer for name, buffer in module.named_buffers() if name in kept}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            state[name] = _whole(parameter)
        return state

    def _clip_in_force(self) -> float:
        return float(self._engine.gradient_clipping())

    def _reduce_dtype(self) -> torch.dtype:
        # The bf16 optimizer of stage 1 leaves the reduction to the engine.
        owner = self._zero if hasattr(self._zero, "communication_data_type") else self._engine
        dtype: torch.dtype = owner.communication_data_type
        return dtype

    def _zero_stage(self) -> int | None:
        return int(self._engine.zero_optimization_stage())

    def _master_dtype(self) -> torch.dtype:
        return self._kept(_MASTERS)[0].dtype

    def _master_bytes(self) -> int:
        return held_bytes(self._kept(_MASTERS))

    def _gradient_buffer_bytes(self) -> int:
        return held_bytes(self._kept(_GRADIENT_BUFFERS))

    def _parameter_bytes(self) -> int:
        return held_bytes(getattr(p, "ds_tensor", p) for p in self.model.parameters())

    def _kept(self, attributes: dict[str, str]) -> list[Tensor]:
        name = attributes.get(type(self._zero).__name__)
        found = [] if name is None else getattr(self._zero, name)
        return [found] if isinstance(found, Tensor) else list(found)


def _whole(parameter: Tensor) -> Tensor:
    """The float32 master of a parameter, gathered from all ranks; a frozen parameter has no master but itself."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param

    if parameter.requires_grad:
        master: Tensor = safe_get_full_fp32_param(parameter)
        # ZeRO-3 leaves an empty placeholder in the parameter's place and keeps its shape aside.
        return master.reshape(getattr(parameter, "ds_shape", parameter.shape))
    with deepspeed.zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
        return parameter.detach().clone()


def _import_deepspeed(device: torch.device) -> Any:
    """DeepSpeed on the existing process group, on the device we run on.

    Its shared-memory all-reduce serves inference only, yet would be compiled at start on CPU hosts; it is declared
    unavailable, so that no compiler is needed.
    """
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(
        dist_backend="nccl" if device.type == "cuda" else "gloo", auto_mpi_discovery=False, verbose=False
    )
    return deepspeed


def build(model: VLA, cell: Cell, device: torch.device) -> DeepSpeedEngine:
    return DeepSpeedEngine(model, cell, device)
