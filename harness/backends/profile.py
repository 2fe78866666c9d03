"""How a model likes to be sharded, and what a suite may say against it. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from harness.errors import BadInput
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
    """`profile = { … }` in a suite: what is given replaces what the base says."""

    base: Literal["model", "dexbotic"] = "model"
    """What the model declares, or what Dexbotic declares of its model of that name."""
    transformer_layer_cls_to_wrap: tuple[str, ...] | None = None
    recomputed_classes: tuple[str, ...] | None = None
    enabled: bool | None = None
    cpu_ram_efficient_loading: bool | None = None
    cast_model_to_bf16_backends: tuple[str, ...] | None = None


_CAST = ("fsdp", "fsdp2")

DEXBOTIC = {
    "pi0": FSDPProfile(),
    "pi05": FSDPProfile(),
    "dm0": FSDPProfile(("Qwen3MLP",), cast_model_to_bf16_backends=_CAST),
    "cogact": FSDPProfile(("Qwen2DecoderLayer",), cast_model_to_bf16_backends=_CAST),
}
"""Profiles of Dexbotic's own layouts, by model (its `--train-backend` profiles): pi0 and pi05 read the parameters of
their layers from the root's forward, hence the root alone. All build on real tensors."""


def resolved_profile(asked: ProfileSettings, model: str, declared: FSDPProfile) -> FSDPProfile:
    """The profile a cell runs with. On Dexbotic's base, what is recomputed stays what the model declares.

    Args:
        model: its name in a suite.

    Raises:
        BadInput: Dexbotic has no model of that name.
    """
    base = declared if asked.base == "model" else _dexbotics(model, declared)
    given = {name: value for name, value in asked if name != "base" and value is not None}
    return replace(base, **given)


def _dexbotics(model: str, declared: FSDPProfile) -> FSDPProfile:
    if model not in DEXBOTIC:
        raise BadInput("models", "profile.base", "dexbotic", f"one of Dexbotic's models, not {model}", DEXBOTIC)
    recomputed = declared.recomputed_classes
    return replace(
        DEXBOTIC[model],
        recomputed_classes=declared.transformer_layer_cls_to_wrap if recomputed is None else recomputed,
    )
