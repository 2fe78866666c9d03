"""What is predicted of a training step on many ranks. No torch here."""

from __future__ import annotations

from typing import Literal

from harness.records import Value
from harness.train.facts import CollectiveKind, ShardBytes, ring_bytes

Method = Literal["engine", "formula"]
"""`engine`: the backend itself made the steps, on a process group that moves nothing. `formula`: see
`harness.simulate.zero` and `harness.simulate.fsdp2`."""


class Traffic(Value):
    """One kind of collective in one optimizer step, as one rank starts them."""

    kind: CollectiveKind
    calls: int | None
    """None: the formula knows bytes only."""
    payload_bytes: int

    def wire_bytes(self, ranks: int) -> float:
        """What a ring sends per rank (`ring_bytes`)."""
        return ring_bytes(self.kind, self.payload_bytes, ranks)


class Counted(Value):
    """A step of the first rank, which under every backend holds the largest share."""

    method: Method
    shard: ShardBytes
    """Just before the update, when gradients, parameters and optimizer state are all there."""
    kept_gradient_bytes: int | None
    """Those that stay between two steps; None: the formula does not say."""
    traffic: list[Traffic]
    """By kind, in alphabetical order."""


class Refusal(Value):
    """What cannot run, there or anywhere, and why."""

    backend: str
    """A key of `harness.backends.options.VARIANTS`."""
    ranks: int
    reason: str


class Prediction(Value):
    """One model under one backend on so many ranks."""

    model: str
    size: str
    backend: str
    """A key of `harness.backends.options.VARIANTS`."""
    ranks: int
    precision: str
    micro_batch: int
    accumulation: int
    counted: Counted
    padding_bytes: int
    """What the first rank holds of parameters beyond an even share."""
    activation_bytes: int
    """What autograd keeps for the backward of one micro-batch."""
    gathered_bytes: int
    """Whole parameters and unreduced gradients that are there for a time (`harness.simulate.memory`)."""
    fits: bool | None
    """Whether `peak_bytes` fits the stated device; None: none was stated."""
    communication_seconds: float | None
    """Of a ring at the stated bandwidth."""
    step_seconds: tuple[float, float] | None
    """All communication hidden behind the stated compute time, and none of it."""

    @property
    def peak_bytes(self) -> int:
        """An estimate: what is there at the end of the forward, all at once."""
        shard = self.counted.shard
        static = shard.parameter_bytes + shard.gradient_bytes + shard.optimizer_bytes
        return static + self.activation_bytes + self.gathered_bytes

    @property
    def wire_bytes(self) -> float:
        """What the first rank sends in a step."""
        return sum(one.wire_bytes(self.ranks) for one in self.counted.traffic)
