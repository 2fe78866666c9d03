"""Small models with all the parts of the published ones, and transformers' own pi0 of the same size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.data.batch import Observation
from harness.data.shape import InputShape
from harness.models.base import VLA
from harness.models.clip import ClipConfig
from harness.models.cogact import CogAct, CogActConfig
from harness.models.dit import DiTConfig
from harness.models.dm0 import Dm0
from harness.models.flow import FlowConfig
from harness.models.perception import PerceptionConfig
from harness.models.pi0 import Pi0
from harness.models.pi05 import Pi05
from harness.models.vision import SiglipConfig

if TYPE_CHECKING:
    from transformers import PI0ForConditionalGeneration

WORDS, CHUNK, DIM = 128, 8, 8
SHAPE = InputShape(
    cameras=("agentview", "wrist"),
    image_size=28,
    text_slots=6,
    vocabulary=WORDS,
    state_dim=DIM,
    action_dim=DIM,
    chunk=CHUNK,
)


def flow(vision: Any) -> FlowConfig:
    return FlowConfig(
        shape=SHAPE,
        vision=vision,
        layers=3,
        heads=4,
        kv_heads=1,
        head_dim=16,
        width=64,
        ffn=128,
        expert_width=32,
        expert_ffn=64,
    )


SIGLIP = flow(SiglipConfig(width=32, layers=2, heads=2, ffn=64, patch=14))
COGACT = CogActConfig(
    shape=SHAPE,
    vision=ClipConfig(width=32, layers=3, heads=2, ffn=64, patch=14),
    layers=2,
    heads=4,
    kv_heads=2,
    width=64,
    ffn=96,
    head=DiTConfig(layers=2, width=32, heads=4),
)
CLASSES: dict[str, type[Any]] = {"Pi0": Pi0, "Pi05": Pi05, "Dm0": Dm0, "CogAct": CogAct}
SMALL: dict[str, Any] = {
    "Pi0": SIGLIP,
    "Pi05": SIGLIP,
    "Dm0": flow(PerceptionConfig(width=16, layers=2, heads=2, patch=7)),
    "CogAct": COGACT,
}


def small(kind: str, seed: int) -> VLA:
    """A model whose parameters all matter: those that start at zero or one are moved away."""
    torch.manual_seed(seed)
    model: VLA = CLASSES[kind](SMALL[kind])
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return model


def cogact(_size: str) -> CogAct:
    """For a suite: `published:cogact`."""
    return CogAct(COGACT)


def observed(shape: InputShape, words: tuple[int, ...] = (6, 3)) -> Observation:
    """Random images, and prompts of so many words."""
    torch.manual_seed(1)
    count, cameras = len(words), len(shape.cameras)
    return Observation(
        images=torch.randn(count, cameras, 3, shape.image_size, shape.image_size),
        image_masks=torch.ones(count, cameras, dtype=torch.bool),
        input_ids=torch.randint(2, shape.vocabulary, (count, shape.text_slots)),
        attention_mask=torch.arange(shape.text_slots) < torch.tensor(words)[:, None],
        state=torch.randn(count, shape.state_dim),
    )


def transformers_pi0() -> PI0ForConditionalGeneration:
    """Of the size of `small("Pi0")`; transformers has it from version 5 on."""
    from transformers import PI0Config, PI0ForConditionalGeneration

    gemma = {
        "model_type": "gemma",
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": WORDS,
    }
    siglip = {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": 14,
        "image_size": 28,
        "vision_use_head": False,
        "projection_dim": 64,
    }
    vlm = {
        "model_type": "paligemma",
        "text_config": gemma | {"hidden_size": 64, "intermediate_size": 128},
        "vision_config": siglip,
        "projection_dim": 64,
        "image_token_id": WORDS,
    }
    config = PI0Config(
        vlm_config=vlm,
        dit_config=gemma | {"hidden_size": 32, "intermediate_size": 64},
        chunk_size=CHUNK,
        max_state_dim=DIM,
        max_action_dim=DIM,
    )
    torch.manual_seed(0)
    model = PI0ForConditionalGeneration(config).train()
    for parameter in model.parameters():  # norms start at zero or one: all must matter
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return model
