"""What a suite may say of each backend, and what each backend cannot do. Pure data: no torch here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.records import Value


class DdpOptions(Value):
    """Replicated parameters, gradients averaged by all-reduce."""

    backend: Literal["ddp"] = "ddp"


Wrap = Literal["layers", "root"]
"""`layers`: the classes of the model's profile, one unit each, and the rest. `root`: the whole model as one unit."""
Precision = Literal["fp32", "bf16"]
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
"""Our names of dtypes and torch's."""


class FsdpOptions(Value):
    """FSDP1 (`FullyShardedDataParallel`, `use_orig_params=True`)."""

    backend: Literal["fsdp"] = "fsdp"
    wrap: Wrap = "layers"


class Fsdp2Options(Value):
    """FSDP2 (`fully_shard`): per-parameter sharding on DTensor."""

    backend: Literal["fsdp2"] = "fsdp2"
    wrap: Wrap = "layers"
    reshard_after_forward: bool | Annotated[int, Field(ge=2)] | None = None
    """None leaves PyTorch's rule: layers reshard, the root does not. A number: to that many ranks only."""
    param_dtype: Precision | None = None
    """What the forward computes with; None takes the cell's precision."""
    reduce_dtype: Precision = "fp32"
    output_dtype: Precision | None = None
    """Of what the root returns; None leaves it as it comes."""
    cast_forward_inputs: bool = False
    cpu_offload: bool = False
    """Parameters, gradients and optimizer live in the host's memory (`CPUOffloadPolicy`)."""
    replicas: int = Field(default=1, ge=1)
    """Hybrid sharding: the ranks form this many groups, each with the whole model in shards (a 2-D mesh)."""
    tensor_parallel: int = Field(default=1, ge=1)
    meta_init: bool = False
    """The model is sharded on `meta`, allocated, then filled from rank 0."""
    trainer_checkpoint: Literal["full", "sharded"] = "full"
    """The Trainer's state dict type: `pytorch_model_fsdp.bin`, or the folder `pytorch_model_fsdp_0`."""


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
    offload_optimizer: bool = False
    """The optimizer's state and masters live in the host's memory, and the update runs there."""
    offload_parameters: bool = False
    """ZeRO-3: the parameters' shards live there too."""


BackendOptions = Annotated[DdpOptions | FsdpOptions | Fsdp2Options | DeepSpeedOptions, Field(discriminator="backend")]

BACKENDS: dict[str, type[DdpOptions] | type[FsdpOptions] | type[Fsdp2Options] | type[DeepSpeedOptions]] = {
    "ddp": DdpOptions,
    "fsdp": FsdpOptions,
    "fsdp2": Fsdp2Options,
    "deepspeed": DeepSpeedOptions,
}

VARIANTS: dict[str, BackendOptions] = {
    "ddp": DdpOptions(),
    "fsdp": FsdpOptions(),
    "fsdp2": Fsdp2Options(),
    "fsdp2-root": Fsdp2Options(wrap="root"),
    "zero1": DeepSpeedOptions(zero_stage=1),
    "zero2": DeepSpeedOptions(zero_stage=2),
    "zero3": DeepSpeedOptions(zero_stage=3),
}
"""What `harness simulate` and `harness validate` may name with --backend, with the options a suite's cell has when it
gives none."""
