"""What a backend asks of Hugging Face's Trainer, and by which path it was really built."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.backends.modules import profile_layers
from harness.errors import MachineFault
from harness.models.base import VLA

if TYPE_CHECKING:
    from transformers import Trainer

NATIVE_FSDP2, PLUGIN_FSDP2 = "trainer_fsdp2_native", "accelerate_fsdp2_plugin"
MODES = {
    "ddp": ("trainer_ddp",),
    "fsdp": ("trainer_fsdp1",),
    "fsdp2": (NATIVE_FSDP2, PLUGIN_FSDP2),
    "deepspeed": ("trainer_deepspeed",),
}
"""Backend → the modes in which it is itself."""


@dataclass(frozen=True)
class TrainerSettings:
    """What a backend adds to a cell's `TrainingArguments`.

    Attributes:
        arguments: keyword arguments of `TrainingArguments`.
        environment: variables accelerate reads where transformers < 5 knows no such argument.
        mixed_precision_policy: replaces that of accelerate's FSDP plugin, which reduces and returns in bfloat16.
    """

    arguments: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    mixed_precision_policy: Any = None


def fsdp_config(model: VLA, version: int, wrap: str, checkpoint: str, recompute: bool) -> dict[str, Any]:
    """The part of `fsdp_config` that FSDP1 and FSDP2 share; the keys are those of transformers 5."""
    profile = model.profile
    profile_layers(model)  # an unknown class is said here, with the names present
    layers = wrap == "layers" and profile.transformer_layer_cls_to_wrap
    return {
        "version": version,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP" if layers else "NO_WRAP",
        "state_dict_type": f"{checkpoint.upper()}_STATE_DICT",
        "cpu_ram_efficient_loading": profile.cpu_ram_efficient_loading,
        "activation_checkpointing": recompute,
    } | ({"transformer_layer_cls_to_wrap": list(profile.transformer_layer_cls_to_wrap)} if layers else {})


def fsdp_settings(config: dict[str, Any], policy: object, transformers_version: str) -> TrainerSettings:
    """An FSDP config in the words of the transformers that is installed.

    transformers < 5 passes wrapping on and ignores `version`, `state_dict_type` and checkpointing: accelerate's plugin
    reads those from the environment (accelerate 1.15, `FullyShardedDataParallelPlugin.__post_init__`).
    """
    if int(transformers_version.partition(".")[0]) >= 5:
        return TrainerSettings({"fsdp": True, "fsdp_config": config}, {}, policy)
    wraps = config["auto_wrap_policy"] != "NO_WRAP"
    environment = {
        "FSDP_VERSION": str(config["version"]),
        "FSDP_AUTO_WRAP_POLICY": config["auto_wrap_policy"],
        "FSDP_STATE_DICT_TYPE": config["state_dict_type"],
        "FSDP_ACTIVATION_CHECKPOINTING": str(config["activation_checkpointing"]).lower(),
        "FSDP_OFFLOAD_PARAMS": str(config.get("cpu_offload", False)).lower(),
    }
    if config["version"] == 2:
        environment["FSDP_RESHARD_AFTER_FORWARD"] = str(config["reshard_after_forward"]).lower()
    older = {key: value for key, value in config.items() if key not in ("version", "auto_wrap_policy")}
    options = "full_shard auto_wrap" if wraps else "full_shard"
    return TrainerSettings({"fsdp": options, "fsdp_config": older}, environment, policy)


def keep_norms(accelerator: Any, keep: Callable[[float], None]) -> None:
    """From now on `keep` gets each gradient norm, before clipping, that accelerate works out for its Trainer."""
    clip = accelerator.clip_grad_norm_

    def clip_grad_norm_(*arguments: Any, **named: Any) -> Any:
        norm = clip(*arguments, **named)
        keep(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
        return norm

    accelerator.clip_grad_norm_ = clip_grad_norm_


def mode_of(trainer: Trainer) -> str:
    """The path by which a Trainer's model was wrapped, from what was built; FSDP2's from the arguments it took.

    Trainer's own FSDP arguments (transformers ≥ 5) are its `fsdp_plugin_args`; without them accelerate's plugin was
    built from the environment.
    """
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.nn.parallel import DistributedDataParallel

    net = trainer.model_wrapped
    if type(net).__name__ == "DeepSpeedEngine":
        return "trainer_deepspeed"
    if isinstance(net, FSDPModule):
        return NATIVE_FSDP2 if getattr(trainer.args, "fsdp_plugin_args", None) else PLUGIN_FSDP2
    if isinstance(net, FullyShardedDataParallel):
        return "trainer_fsdp1"
    return "trainer_ddp" if isinstance(net, DistributedDataParallel) else "not distributed"


def confirmed_mode(trainer: Trainer, backend: str) -> str:
    """The mode, if it is one of the backend's. Raises MachineFault when the Trainer fell back to something else."""
    mode = mode_of(trainer)
    if mode not in MODES[backend]:
        raise MachineFault(
            f"{backend} was asked for, but the Trainer built {type(trainer.model_wrapped).__name__} ({mode}); "
            f"distributed_type is {trainer.accelerator.distributed_type}, "
            f"ACCELERATE_USE_FSDP={os.environ.get('ACCELERATE_USE_FSDP')}"
        )
    return mode
