"""DeepSpeed ZeRO 1, 2 and 3 around a torch optimizer; every option that matters is written out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from harness.backends.engine import BaseEngine, Parts
from harness.backends.modules import held_bytes
from harness.backends.optimizer import build_optimizer
from harness.backends.options import DeepSpeedOptions
from harness.backends.probe import Probe
from harness.backends.trainer import TrainerSettings
from harness.errors import MachineFault
from harness.models.base import VLA
from harness.plan import Cell

_TAG, _UNIVERSAL = "state", "universal"
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
    host = {"device": "cpu", "pin_memory": on_cuda}
    if options.offload_optimizer:
        zero["offload_optimizer"] = host
    if options.offload_parameters:
        zero["offload_param"] = host
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
        "zero_force_ds_cpu_optimizer": False,  # the same torch optimizer everywhere, on the host as well
        "steps_per_print": _NEVER,
    }


class DeepSpeedEngine(BaseEngine):
    def __init__(self, parts: Parts, cell: Cell, device: torch.device) -> None:
        super().__init__(parts, cell, device)
        self._engine: Any = parts.net
        self._zero: Any = parts.net.optimizer

    def _differentiate(self, loss: Tensor, last: bool) -> None:
        self._engine.backward(loss)
        if not last:
            self._engine.step()  # only counts the micro-batch

    def _update(self) -> float:
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    def _save_state(self, folder: Path) -> None:
        self._engine.save_checkpoint(str(folder), tag=_TAG)

    def _load_state(self, folder: Path, ranks: int) -> None:
        if ranks == dist.get_world_size():
            self._engine.load_checkpoint(str(folder), tag=_TAG)
            return
        # ZeRO's own form has one part per rank. The universal one, made from it, has one per parameter.
        if dist.get_rank() == 0:
            _convert_to_universal(folder)
        dist.barrier()
        self._engine._config.load_universal_checkpoint = True
        self._engine.load_checkpoint(str(folder), tag=_UNIVERSAL)
        self._engine._config.load_universal_checkpoint = False
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder / _UNIVERSAL)

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


def _convert_to_universal(folder: Path) -> None:
    """By DeepSpeed's own tool, in a process of its own. Raises MachineFault with its last words."""
    shutil.rmtree(folder / _UNIVERSAL, ignore_errors=True)
    tool = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    places = [f"--input_folder={folder / _TAG}", f"--output_folder={folder / _UNIVERSAL}", "--num_extract_workers=1"]
    done = subprocess.run([*tool, *places, "--num_merge_workers=1"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MachineFault(f"{folder}: DeepSpeed could not convert it to a universal checkpoint: {done.stderr[-500:]}")


def import_deepspeed(device_type: str) -> Any:
    """The module, set to run on `cuda` or `cpu`.

    Its shared-memory all-reduce serves inference only, yet would be compiled at start on CPU hosts; it is declared
    unavailable, so that no compiler is needed.
    """
    os.environ.setdefault("DS_ACCELERATOR", device_type)
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def join_group(device: torch.device) -> Any:
    """DeepSpeed on the process group there is. Returns the module."""
    deepspeed = import_deepspeed(device.type)
    deepspeed.init_distributed(
        dist_backend="nccl" if device.type == "cuda" else "gloo", auto_mpi_discovery=False, verbose=False
    )
    return deepspeed


def build(model: VLA, cell: Cell, device: torch.device) -> DeepSpeedEngine:
    probe, deepspeed = Probe.of(model), join_group(device)
    optimizer = build_optimizer(model.parameters(), cell.optimizer, device)
    net, _, _, _ = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        config=config_of(cell, on_cuda=device.type == "cuda"),
        dist_init_required=False,
    )
    return DeepSpeedEngine(Parts(model, net, optimizer, probe), cell, device)


def trainer_settings(cell: Cell, model: VLA) -> TrainerSettings:  # noqa: ARG001
    """The native stack's own config; the Trainer checks its batch, clipping and precision against the arguments."""
    return TrainerSettings({"deepspeed": config_of(cell, on_cuda=torch.cuda.is_available())})


ENGINE = DeepSpeedEngine
