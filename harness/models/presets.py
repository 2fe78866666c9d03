"""The sizes each model comes in. `full` is the published shape; `micro` learns on a CPU; `tiny` is for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from harness.data.shape import ABSENT, CAMERAS, InputShape
from harness.errors import BadInput
from harness.models.clip import ClipConfig
from harness.models.cogact import CogAct, CogActConfig
from harness.models.dit import DIT_B, DiTConfig
from harness.models.dm0 import Dm0
from harness.models.flow import FlowConfig
from harness.models.perception import PerceptionConfig
from harness.models.pi0 import Pi0
from harness.models.pi05 import Pi05
from harness.models.vision import SiglipConfig, StemConfig

C = TypeVar("C")


def _with_text(config: FlowConfig, slots: int, vocabulary: int) -> FlowConfig:
    shape = config.shape.model_copy(update={"text_slots": slots, "vocabulary": vocabulary})
    return replace(config, shape=shape)


PI0: dict[str, FlowConfig] = {
    "tiny": FlowConfig(
        shape=InputShape(
            cameras=CAMERAS, image_size=32, text_slots=16, vocabulary=64, state_dim=8, action_dim=7, chunk=10
        ),
        vision=StemConfig(channels=(8, 16, 32)),
        layers=2,
        heads=4,
        kv_heads=1,
        head_dim=8,
        width=32,
        ffn=64,
        expert_width=32,
        expert_ffn=64,
    ),
    "micro": FlowConfig(
        shape=InputShape(
            cameras=CAMERAS, image_size=64, text_slots=16, vocabulary=256, state_dim=8, action_dim=7, chunk=10
        ),
        vision=StemConfig(channels=(32, 64, 96, 128)),
        layers=4,
        heads=4,
        kv_heads=1,
        head_dim=32,
        width=128,
        ffn=256,
        expert_width=128,
        expert_ffn=256,
    ),
    # PaliGemma-3B and the 300 M expert of openpi's `pi0.py`; LIBERO leaves the third camera slot empty.
    "full": FlowConfig(
        shape=InputShape(
            cameras=(*CAMERAS, ABSENT),
            image_size=224,
            text_slots=48,
            prompt_template="{prompt}\n",  # openpi's and Dexbotic's PaliGemma prompts end with a line of their own
            vocabulary=257_152,
            state_dim=32,
            action_dim=32,
            chunk=50,
        ),
        vision=SiglipConfig(width=1152, layers=27, heads=16, ffn=4304, patch=14),
        layers=18,
        heads=8,
        kv_heads=1,
        head_dim=256,
        width=2048,
        ffn=16_384,
        expert_width=1024,
        expert_ffn=4096,
    ),
}

PI05: dict[str, FlowConfig] = {
    # Slots and words for a state in the prompt: 8 numbers of 256.
    "tiny": _with_text(PI0["tiny"], slots=24, vocabulary=320),
    "micro": _with_text(PI0["micro"], slots=24, vocabulary=512),
    # openpi's `pi05_base`. LIBERO's training takes 10 actions per chunk instead of 50.
    "full": _with_text(PI0["full"], slots=200, vocabulary=257_152),
}

DM0: dict[str, FlowConfig] = {
    # The tower is the published one with smaller numbers: 8 × 8 patches become 2 × 2 tokens.
    "tiny": replace(PI0["tiny"], vision=PerceptionConfig(width=16, layers=2, heads=2, patch=4), heads=4, kv_heads=2),
    "micro": replace(PI0["micro"], kv_heads=2),
    # `config.json` of Dexmal/DM0-base: Qwen3-1.7B, an expert of half its width, PE_LANG_L14_728.
    "full": FlowConfig(
        shape=InputShape(
            cameras=(*CAMERAS, ABSENT),
            image_size=728,
            text_slots=200,
            vocabulary=152_701,
            state_dim=32,
            action_dim=32,
            chunk=50,
        ),
        vision=PerceptionConfig(width=1024, layers=23, heads=16, patch=14),
        layers=28,
        heads=16,
        kv_heads=8,
        head_dim=128,
        width=2048,
        ffn=6144,
        expert_width=1024,
        expert_ffn=1536,
    ),
}

COGACT: dict[str, CogActConfig] = {
    "tiny": CogActConfig(
        shape=InputShape(
            cameras=CAMERAS, image_size=32, text_slots=16, vocabulary=64, state_dim=8, action_dim=7, chunk=10
        ),
        vision=StemConfig(channels=(8, 16, 32)),
        layers=2,
        heads=4,
        kv_heads=2,
        width=32,
        ffn=64,
        head=DiTConfig(layers=2, width=32, heads=4),
    ),
    "micro": CogActConfig(
        shape=InputShape(
            cameras=CAMERAS, image_size=64, text_slots=16, vocabulary=256, state_dim=8, action_dim=7, chunk=10
        ),
        vision=StemConfig(channels=(32, 64, 96, 128)),
        layers=4,
        heads=4,
        kv_heads=2,
        width=128,
        ffn=256,
        head=DiTConfig(layers=4, width=128, heads=4),
    ),
    # `config.json` of Dexbotic's published cogact checkpoints: CLIP-L/14 at 336 pixels, Qwen2.5-7B, DiT-B; on LIBERO
    # it sees the front camera alone.
    "full": CogActConfig(
        shape=InputShape(
            cameras=CAMERAS[:1],
            image_size=336,
            text_slots=64,
            vocabulary=151_920,
            state_dim=8,
            action_dim=7,
            chunk=16,
        ),
        vision=ClipConfig(width=1024, layers=24, heads=16, ffn=4096, patch=14),
        layers=28,
        heads=28,
        kv_heads=4,
        width=3584,
        ffn=18_944,
        head=DIT_B,
    ),
}


def pi0(size: str) -> Pi0:
    return Pi0(_sized("pi0", PI0, size))


def pi05(size: str) -> Pi05:
    return Pi05(_sized("pi05", PI05, size))


def dm0(size: str) -> Dm0:
    return Dm0(_sized("dm0", DM0, size))


def cogact(size: str) -> CogAct:
    return CogAct(_sized("cogact", COGACT, size))


def _sized(model: str, presets: Mapping[str, C], size: str) -> C:
    if size not in presets:
        raise BadInput("models", "size", size, f"a size of {model}", presets)
    return presets[size]
