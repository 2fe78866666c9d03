"""What a suite may say of each backend, and what each backend cannot do. Pure data: no torch here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.records import Value


class DdpOptions(Value):
    """Replicated parameters, gradients averaged by all-reduce."""

    backend: Literal["ddp"] = "ddp"


class FsdpOptions(Value):
    """FSDP1 (`FullyShardedDataParallel`, `use_orig_params=True`)."""

    backend: Literal["fsdp"] = "fsdp"
    wrap: Literal["layers", "root"] = "layers"


class Fsdp2Options(Value):
    """FSDP2 (`fully_shard`): per-parameter sharding on DTensor."""

    backend: Literal["fsdp2"] = "fsdp2"
    wrap: Literal["layers", "root"] = "layers"
    reshard_after_forward: bool | None = None
    """None leaves PyTorch's rule: layers reshard, the root does not."""


class DeepSpeedOptions(Value):
    """DeepSpeed ZeRO. Bucket sizes are in elements and always written out, never left to defaults."""

    backend: Literal["deepspeed"] = "deepspeed"
    zero_stage: Literal[1, 2, 3] = 3
    reduce_bucket_size: int = Field(default=5_000_000, gt=0)
    allgather_bucket_size: int = Field(default=5_000_000, gt=0)
    param_persistence_threshold: int = Field(default=0, ge=0)
    """ZeRO-3: parameters of fewer elements stay whole on every rank. 0 shards all, as FSDP2 does."""
    max_live_parameters: int = Field(default=1_000_000, gt=0)
    memory_efficient_linear: bool = True
    """ZeRO-3 replaces `torch.nn.functional.linear` for the whole process when on (its default)."""


BackendOptions = Annotated[DdpOptions | FsdpOptions | Fsdp2Options | DeepSpeedOptions, Field(discriminator="backend")]

BACKENDS: dict[str, type[DdpOptions] | type[FsdpOptions] | type[Fsdp2Options] | type[DeepSpeedOptions]] = {
    "ddp": DdpOptions,
    "fsdp": FsdpOptions,
    "fsdp2": Fsdp2Options,
    "deepspeed": DeepSpeedOptions,
}
