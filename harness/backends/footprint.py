"""Static memory of a training: parameters, gradients and optimizer state of one rank, by formula. No torch here.

With N parameters of which T train, AdamW, on R ranks, in bytes:

- ddp: 4N + 4T + 8T. Under bf16 too: parameters stay in float32 and are cast for the forward.
- fsdp, fsdp2: all of that divided by R.
- zero1, zero2, zero3: pN + 4T + 12T, where p is 4, or 2 under bf16, and the 12 are a float32 master and Adam's two
  moments; stage 1 divides the last term by R, stage 2 the gradients too, stage 3 all (ZeRO, arXiv 1910.02054, with
  gradients in float32 as `harness.backends.deepspeed` configures them).

Activations, communication buffers and the units FSDP and ZeRO-3 have gathered at a time come on top.
"""

from __future__ import annotations

from typing import Literal

from harness.backends.options import BackendOptions, DdpOptions, DeepSpeedOptions, Fsdp2Options, FsdpOptions
from harness.train.facts import ShardBytes

Strategy = Literal["ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3"]
STRATEGIES: tuple[Strategy, ...] = ("ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3")
_ZERO: dict[int, Strategy] = {1: "zero1", 2: "zero2", 3: "zero3"}
Precision = Literal["fp32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
RANKS = (1, 2, 8, 64)
"""Numbers of ranks that `harness models` shows."""


def strategy_of(options: BackendOptions) -> Strategy:
    """What a backend with these options does, in the terms of this module."""
    match options:
        case DeepSpeedOptions(zero_stage=stage):
            return _ZERO[stage]
        case FsdpOptions():
            return "fsdp"
        case Fsdp2Options():
            return "fsdp2"
        case DdpOptions():
            return "ddp"


def static_bytes(strategy: Strategy, precision: Precision, parameters: int, trainable: int, ranks: int) -> ShardBytes:
    """Bytes of one of `ranks` ranks, rounded up."""
    zero = strategy.startswith("zero")
    parameter = (2 if zero and precision == "bf16" else 4) * parameters
    gradient, optimizer = 4 * trainable, (12 if zero else 8) * trainable
    sharded = strategy in ("fsdp", "fsdp2", "zero3")
    return ShardBytes(
        parameter_bytes=_share(parameter, ranks if sharded else 1),
        gradient_bytes=_share(gradient, ranks if sharded or strategy == "zero2" else 1),
        optimizer_bytes=_share(optimizer, ranks if strategy != "ddp" else 1),
    )


def _share(whole: int, ranks: int) -> int:
    return -(-whole // ranks)
