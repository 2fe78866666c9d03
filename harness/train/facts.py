"""What a run is made of and does, as its ranks find it: what was built, what it works on, holds and sends."""

from __future__ import annotations

from typing import Literal

from harness.records import Value
from harness.suite import Optimizer


class InForce(Value):
    """What was really built, read back from the live objects, never copied from the request."""

    backend: str
    resolved_mode: str = "native"
    """The path by which it was built: `native`, `trainer_fsdp2_native`, `accelerate_fsdp2_plugin`, `trainer_ddp` …"""
    wrapper: str
    """Class of the object that runs the forward: `DistributedDataParallel`, `FSDPPi0`, `DeepSpeedEngine` …"""
    parameter_class: str
    """`Parameter` or `DTensor`: the proof that FSDP2 took hold."""
    sharded_units: int
    """Wrapped modules (FSDP1, FSDP2); 0 where the idea does not apply."""
    zero_stage: int | None
    world_size: int
    collective_backend: str
    parameter_dtype: str
    """What the forward finds its parameters in."""
    autocast_dtype: str | None = None
    """What `torch.autocast` computes in, over the parameters' dtype; None where it is off."""
    master_dtype: str
    """What the optimizer updates."""
    reduce_dtype: str
    micro_batch: int
    accumulation: int
    clip: float
    activation_checkpointing: bool
    optimizer_class: str
    optimizer: Optimizer


class Workload(Value):
    """Facts that must agree before two runs may be compared."""

    parameters: int
    trainable_parameters: int
    initial_weights_sha256: str
    data_sha256: str
    """Over the first `hashed_batches` batches of all ranks, in rank order."""
    hashed_batches: int
    damaged_episodes: tuple[str, ...] = ()
    """Episodes that `skip_damaged` left out, and what was wrong with each."""
    samples_per_step: int
    tokens_per_sample: int
    tokens_definition: str
    training_flops_per_sample: int | None = None
    """Operations of forward and backward, counted by PyTorch on `meta` with what is frozen left frozen."""
    hardware_flops_per_sample: int | None = None
    """Likewise, with what activation checkpointing computes again."""


class ShardBytes(Value):
    """Bytes this rank holds between two steps."""

    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int


CollectiveKind = Literal[
    "all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "receive", "reduce", "reduce_scatter", "scatter",
    "send",
]  # fmt: skip


def ring_bytes(kind: CollectiveKind, payload_bytes: int, ranks: int) -> float:
    """What a ring algorithm sends per rank: payload · (W - 1) / W, twice that for an all-reduce (Patarasuk and Yuan
    2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations")."""
    return payload_bytes * (ranks - 1) / ranks * (2 if kind == "all_reduce" else 1)


class Collectives(Value):
    """One kind of collective in one optimizer step, as one rank starts them."""

    kind: CollectiveKind
    calls: int
    payload_bytes: int
    """The larger side: what an all-gather gives, what a reduce-scatter takes."""

    def wire_bytes(self, ranks: int) -> float:
        """What a ring sends per rank (`ring_bytes`)."""
        return ring_bytes(self.kind, self.payload_bytes, ranks)


class PhasePeaks(Value):
    """Peaks of the CUDA allocator within a step."""

    forward_backward_bytes: int
    update_bytes: int
    """Clipping, optimizer, clearing."""
