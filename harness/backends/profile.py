"""How a model likes to be sharded, and what a suite may say against it. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.records import Value


@dataclass(frozen=True)
class FSDPProfile:
    """Declared by each model; the field names are Dexbotic's.

    Attributes:
        transformer_layer_cls_to_wrap: classes of modules to wrap, bottom-up, one unit each. None of them: the root
            alone, which is what a forward needs that reads the parameters inside its layers.
        recomputed_classes: what activation checkpointing wraps; None for the same classes.
        enabled: whether FSDP may wrap the model at all.
        cpu_ram_efficient_loading: Trainer stack: weights are loaded on rank 0 and sent to the others, which build on
            `meta`. False where building draws on real tensors.
        cast_model_to_bf16_backends: backends under which a bf16 cell casts the whole model, so that the optimizer
            has no float32 masters (DeepSpeed keeps its own all the same).
    """

    transformer_layer_cls_to_wrap: tuple[str, ...] = ()
    recomputed_classes: tuple[str, ...] | None = None
    enabled: bool = True
    cpu_ram_efficient_loading: bool = False
    cast_model_to_bf16_backends: tuple[str, ...] = ()


class ProfileSettings(Value):
    """`profile = { … }` in a suite: what is given replaces what the model declares."""

    transformer_layer_cls_to_wrap: tuple[str, ...] | None = None
    recomputed_classes: tuple[str, ...] | None = None
    enabled: bool | None = None
    cpu_ram_efficient_loading: bool | None = None
    cast_model_to_bf16_backends: tuple[str, ...] | None = None

    def over(self, declared: FSDPProfile) -> FSDPProfile:
        return replace(declared, **{name: value for name, value in self if value is not None})


_CAST = ("fsdp", "fsdp2")

DEXBOTIC = {
    "pi0": FSDPProfile(),
    "pi05": FSDPProfile(),
    "dm0": FSDPProfile(("Qwen3MLP",), cast_model_to_bf16_backends=_CAST),
    "cogact": FSDPProfile(("Qwen2DecoderLayer",), cast_model_to_bf16_backends=_CAST),
}
"""Profiles of Dexbotic's own layouts, by model (its `--train-backend` profiles): pi0 and pi05 read the parameters of
their layers from the root's forward, hence the root alone. All build on real tensors."""
