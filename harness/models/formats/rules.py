"""The published checkpoint formats as data: how each spells the names of our parameters.

Sources: transformers' `models/pi0` and its table of renamings for hub checkpoints (`conversion_mapping.py`); openpi's
`models_pytorch`; lerobot's `policies/pi0` and `policies/pi05`; Dexbotic's `model/*_arch.py`, `mm_vision` and
`cogact/action_model`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Rule = tuple[str, str]
"""A regular expression for the beginning of a name, and what stands there instead (`re.sub`)."""


@dataclass(frozen=True)
class Format:
    """How one project names the tensors of one model.

    Attributes:
        name: what the command line and messages call it.
        model: class of the models it is for (a subclass will do).
        rules: our names to published ones; the first rule that fits is used, and a name that none fits has no place
            in the format.
        aliases: other spellings met in files of this format, turned into the one the rules give, all in order.
        unread: beginnings of published names that no parameter of ours stands for: nothing reads them in training.
    """

    name: str
    model: str
    rules: tuple[Rule, ...]
    aliases: tuple[Rule, ...] = ()
    unread: tuple[str, ...] = ()

    def published(self, own: str) -> str | None:
        """The published name of a parameter of ours; None when it has none."""
        for pattern, replacement in self.rules:
            if re.match(pattern, own):
                return re.sub(pattern, replacement, own, count=1)
        return None

    def canonical(self, found: str) -> str:
        """A name as found in a file, in the spelling `published` uses."""
        for pattern, replacement in self.aliases:
            found = re.sub(f"^(?:{pattern})", replacement, found)
        return found

    def is_unread(self, canonical: str) -> bool:
        return any(re.match(pattern, canonical) for pattern in self.unread)


HARNESS = Format("harness", "VLA", rules=((r"", ""),))
"""Our own names, which every model has."""


def _couple(vlm: str, expert: str, vision: str, projector: str) -> tuple[Rule, ...]:
    """What all formats of a coupled VLM and expert have in common.

    Args:
        vlm, expert: prefixes of the two language models. vision, projector: of SigLIP and the layer after it.
    """
    return (
        (r"layers\.(\d+)\.vlm\.", rf"{vlm}layers.\1."),
        (r"layers\.(\d+)\.expert\.", rf"{expert}layers.\1."),
        (r"norm\.", f"{expert}norm."),
        (r"vision\.tower\.", vision),
        (r"vision\.projector\.", projector),
    )


_ACTION_OUT = (r"(?=action_out_proj\.)", "")

TRANSFORMERS_PI0 = Format(
    "transformers-pi0",
    "Pi0",
    rules=(
        *_couple(
            "model.vlm.language_model.",
            "model.dit.",
            "model.vlm.vision_tower.",
            "model.vlm.multi_modal_projector.linear.",
        ),
        (r"embed_tokens\.", "model.vlm.language_model.embed_tokens."),
        (r"(?=(state_proj|action_in_proj|action_time_mlp_in|action_time_mlp_out)\.)", "embed_action_time."),
        _ACTION_OUT,
    ),
    aliases=((r"model\.vlm\.vision_tower\.vision_model\.", "model.vlm.vision_tower."),),
    unread=(r"model\.dit\.embed_tokens\.", r"model\.vlm\.language_model\.norm\."),
)
"""`PI0ForConditionalGeneration` of transformers 5."""

_PALIGEMMA = "paligemma_with_expert.paligemma."
_EXPERT = "paligemma_with_expert.gemma_expert."


def _openpi(name: str, model: str, projections: str, root: str) -> Format:
    """openpi's PyTorch models, and lerobot's, which are the same below a root of their own."""
    expert = re.escape(root + _EXPERT)
    paligemma = re.escape(root + _PALIGEMMA)
    return Format(
        name,
        model,
        rules=(
            *_couple(
                f"{root}{_PALIGEMMA}model.language_model.",
                f"{root}{_EXPERT}model.",
                f"{root}{_PALIGEMMA}model.vision_tower.vision_model.",
                f"{root}{_PALIGEMMA}model.multi_modal_projector.linear.",
            ),
            # Text embedding and head are one tensor there, and the files keep it under the head's name.
            (r"embed_tokens\.", f"{root}{_PALIGEMMA}lm_head."),
            (rf"(?=({projections})\.)", root),
        ),
        aliases=(
            # Levels as transformers had them before 4.52, and as `save_pretrained` of its own pi0 writes them (5.24).
            (rf"{paligemma}language_model\.lm_head\.", f"{root}{_PALIGEMMA}lm_head."),
            (rf"{paligemma}(model\.)?language_model\.model\.", f"{root}{_PALIGEMMA}model.language_model."),
            (rf"{paligemma}(?=vision_tower\.|multi_modal_projector\.)", f"{root}{_PALIGEMMA}model."),
            (rf"{paligemma}model\.language_model\.embed_tokens\.", f"{root}{_PALIGEMMA}lm_head."),
            # transformers 5 has one level less.
            (
                rf"{paligemma}model\.vision_tower\.(?!vision_model\.)",
                f"{root}{_PALIGEMMA}model.vision_tower.vision_model.",
            ),
        ),
        unread=(
            rf"{expert}lm_head\.",
            rf"{expert}model\.embed_tokens\.",
            rf"{paligemma}model\.language_model\.norm\.",
        ),
    )


_PI0_PROJECTIONS = "state_proj|action_in_proj|action_out_proj|action_time_mlp_in|action_time_mlp_out"
_PI05_PROJECTIONS = "action_in_proj|action_out_proj|time_mlp_in|time_mlp_out"
_DM0_PROJECTIONS = "action_in_proj|action_out_proj|action_time_mlp_in|action_time_mlp_out"

OPENPI_PI0 = _openpi("openpi-pi0", "Pi0", _PI0_PROJECTIONS, "")
OPENPI_PI05 = _openpi("openpi-pi05", "Pi05", _PI05_PROJECTIONS, "")
LEROBOT_PI0 = _openpi("lerobot-pi0", "Pi0", _PI0_PROJECTIONS, "model.")
LEROBOT_PI05 = _openpi("lerobot-pi05", "Pi05", _PI05_PROJECTIONS, "model.")

_DEXBOTIC_TOWER = "model.mm_vision_tower.vision_tower."
_DEXBOTIC_UNREAD = (
    r"lm_head\.",
    r"model\.llm\.norm\.",
    r"model\.mm_vision_tower\.vision_tower\.vision_model\.(head|embeddings\.position_ids)",
)


def _dexbotic(name: str, model: str, projections: str, vision: str, expert: str = "model.action_expert.") -> Format:
    return Format(
        name,
        model,
        rules=(
            # Our names of a Perception Encoder's layers leave out the modules between.
            (r"vision\.tower\.blocks\.(\d+)\.(ln_\d)\.", rf"{vision}transformer.resblocks.\1.\2."),
            (r"vision\.tower\.blocks\.(\d+)\.(ls_\d)$", rf"{vision}transformer.resblocks.\1.\2.gamma"),
            (r"vision\.tower\.blocks\.(\d+)\.in_proj\.", rf"{vision}transformer.resblocks.\1.attn.in_proj_"),
            (r"vision\.tower\.blocks\.(\d+)\.out_proj\.", rf"{vision}transformer.resblocks.\1.attn.out_proj."),
            (r"vision\.tower\.blocks\.(\d+)\.(c_fc|c_proj)\.", rf"{vision}transformer.resblocks.\1.mlp.\2."),
            *_couple("model.llm.", expert, vision, "model.mm_projector."),
            (r"embed_tokens\.", "model.llm.embed_tokens."),
            (rf"(?=({projections})\.)", "model."),
        ),
        aliases=((r"model\.mm_projector\.0\.", "model.mm_projector."),),
        unread=(
            *_DEXBOTIC_UNREAD,
            rf"{re.escape(expert)}embed_tokens\.",
            r"model\.action_expert\.lm_head\.",
        ),
    )


_SIGLIP = f"{_DEXBOTIC_TOWER}vision_model."

DEXBOTIC_PI0 = _dexbotic("dexbotic-pi0", "Pi0", _PI0_PROJECTIONS, _SIGLIP)
DEXBOTIC_PI05 = _dexbotic("dexbotic-pi05", "Pi05", _PI05_PROJECTIONS, _SIGLIP)
DEXBOTIC_DM0 = _dexbotic("dexbotic-dm0", "Dm0", _DM0_PROJECTIONS, _DEXBOTIC_TOWER, "model.action_expert.model.")

_HEAD = "model.action_head.net."

DEXBOTIC_COGACT = Format(
    "dexbotic-cogact",
    "CogAct",
    rules=(
        (r"vision\.tower\.", _SIGLIP),
        (r"vision\.unread\.", f"{_SIGLIP}encoder.layers."),
        (r"vision\.projector\.first\.", "model.mm_projector.0."),
        (r"vision\.projector\.second\.", "model.mm_projector.2."),
        (r"(?=(embed_tokens|layers|norm)\.)", "model.llm."),
        (r"head\.action_in\.", f"{_HEAD}x_embedder.linear."),
        (r"head\.time_in\.", f"{_HEAD}t_embedder.mlp.0."),
        (r"head\.time_out\.", f"{_HEAD}t_embedder.mlp.2."),
        (r"head\.condition\.", f"{_HEAD}z_embedder.linear."),
        (r"head\.no_condition$", f"{_HEAD}z_embedder.uncondition"),
        (r"head\.positions$", f"{_HEAD}positional_embedding"),
        (r"head\.blocks\.(\d+)\.(qkv|proj)\.", rf"{_HEAD}blocks.\1.attn.\2."),
        (r"head\.blocks\.(\d+)\.(fc1|fc2)\.", rf"{_HEAD}blocks.\1.mlp.\2."),
        (r"head\.out\.", f"{_HEAD}final_layer.linear."),
    ),
    aliases=((rf"{re.escape(_DEXBOTIC_TOWER)}(?!vision_model\.)", _SIGLIP),),
    unread=(
        r"lm_head\.",
        r"model\.mm_vision_tower\.vision_tower\.vision_model\.embeddings\.position_ids",
        rf"{re.escape(_HEAD)}history_embedder\.",
    ),
)

FORMATS = {
    chosen.name: chosen
    for chosen in (
        HARNESS,
        TRANSFORMERS_PI0,
        OPENPI_PI0,
        OPENPI_PI05,
        LEROBOT_PI0,
        LEROBOT_PI05,
        DEXBOTIC_PI0,
        DEXBOTIC_PI05,
        DEXBOTIC_DM0,
        DEXBOTIC_COGACT,
    )
}
