"""What can be said of a model without running it: sizes, tokens, operations, static memory."""

from __future__ import annotations

from harness.backends.footprint import RANKS, STRATEGIES, Precision, Strategy, static_bytes
from harness.models import build_on_meta
from harness.records import Value
from harness.train.facts import ShardBytes


class StaticMemory(Value):
    """Bytes of one rank, see `harness.backends.footprint`."""

    backend: Strategy
    ranks: int
    shard: ShardBytes

    @property
    def total_bytes(self) -> int:
        return self.shard.parameter_bytes + self.shard.gradient_bytes + self.shard.optimizer_bytes


class ModelFacts(Value):
    """One model of one size."""

    name: str
    size: str
    parameters: int
    trainable_parameters: int
    frozen_parameters: int
    """Those the model declares unreachable by the loss."""
    parts: dict[str, int]
    """Parameters by part (`VLA.parts`)."""
    tokens_per_sample: int
    tokens_definition: str
    forward_flops: int
    """Per sample; by the model's formula, which tests hold against PyTorch's counter."""
    training_flops: int
    """Forward and backward per sample: three times the forward."""
    precision: Precision
    static_memory: list[StaticMemory]


def facts(name: str, size: str, precision: Precision) -> ModelFacts:
    """Builds the model on `meta`, which costs no memory. Raises BadInput as `harness.models.build` does."""
    model = build_on_meta(name, size)
    total = sum(parameter.numel() for parameter in model.parameters())
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    forward = model.forward_flops()
    return ModelFacts(
        name=name,
        size=size,
        parameters=total,
        trainable_parameters=trainable,
        frozen_parameters=total - trainable,
        parts={
            part: sum(parameter.numel() for module in modules for parameter in module.parameters())
            for part, modules in model.parts().items()
        },
        tokens_per_sample=model.tokens_per_sample(),
        tokens_definition=model.tokens_definition,
        forward_flops=forward,
        training_flops=3 * forward,
        precision=precision,
        static_memory=[
            StaticMemory(
                backend=strategy, ranks=ranks, shard=static_bytes(strategy, precision, total, trainable, ranks)
            )
            for strategy in STRATEGIES
            for ranks in RANKS
        ],
    )
