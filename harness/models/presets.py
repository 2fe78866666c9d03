"""The sizes each model comes in. `full` is the published shape; `micro` learns on a CPU; `tiny` is for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from harness.data.shape import ABSENT, InputShape
from harness.errors import BadInput
from harness.models.pi0 import Pi0, Pi0Config, SiglipConfig, StemConfig

C = TypeVar("C")

CAMERAS = ("agentview", "robot0_eye_in_hand")

PI0: dict[str, Pi0Config] = {
    "tiny": Pi0Config(
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
    "micro": Pi0Config(
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
    "full": Pi0Config(
        shape=InputShape(
            cameras=(*CAMERAS, ABSENT),
            image_size=224,
            text_slots=48,
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


def pi0(size: str) -> Pi0:
    return Pi0(_sized("pi0", PI0, size))


def _sized(model: str, presets: Mapping[str, C], size: str) -> C:
    if size not in presets:
        raise BadInput("models", "size", size, f"a size of {model}", presets)
    return presets[size]
