"""A model under examination: built when a rule first asks, and run once for all rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch

from harness.data.batch import Batch
from harness.data.shape import InputShape
from harness.models.base import VLA
from harness.models.flops import blank_batch

_SEED = 0
_SAMPLES = 2


class Subject:
    """One model, and what is seen of it."""

    def __init__(self, build: Callable[[], VLA]) -> None:
        self._build = build

    def fresh(self) -> VLA:
        """Another copy with the same weights, in float32 on the CPU."""
        torch.manual_seed(_SEED)
        return self._build()

    @cached_property
    def model(self) -> VLA:
        """After one forward and backward."""
        model = self.fresh()
        model(sample_batch(model)).backward()
        return model


def sample_batch(model: VLA, device: str = "cpu") -> Batch:
    """Two samples of noise: every camera is there, every word counts."""
    shape: InputShape = model.shape
    blank = blank_batch(model, _SAMPLES, "cpu")
    random = torch.Generator().manual_seed(_SEED)
    seen = blank.observation
    observation = replace(
        seen,
        images=torch.rand(seen.images.shape, generator=random) * 2 - 1,
        image_masks=torch.ones_like(seen.image_masks),
        input_ids=torch.randint(shape.vocabulary, seen.input_ids.shape, generator=random),
        attention_mask=torch.ones_like(seen.attention_mask),
        state=torch.randn(seen.state.shape, generator=random),
    )
    actions = torch.randn(blank.actions.shape, generator=random)
    return Batch(observation, actions, blank.generator).to(torch.device(device))
