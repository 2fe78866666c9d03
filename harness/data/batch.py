"""The batch: the only thing that passes from data to models."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Observation:
    """What a model sees.

    Attributes:
        images: float32 (B, cameras, 3, H, W) in [-1, 1].
        image_masks: bool (B, cameras); False where a camera is missing.
        input_ids: int64 (B, text slots).
        attention_mask: bool (B, text slots); False on padding.
        state: float32 (B, state dimensions), normalised.
    """

    images: Tensor
    image_masks: Tensor
    input_ids: Tensor
    attention_mask: Tensor
    state: Tensor

    def to(self, device: torch.device) -> Observation:
        return Observation(
            self.images.to(device),
            self.image_masks.to(device),
            self.input_ids.to(device),
            self.attention_mask.to(device),
            self.state.to(device),
        )


@dataclass(frozen=True)
class Batch:
    """One micro-batch of one rank.

    Attributes:
        observation: see `Observation`.
        actions: float32 (B, H, A), normalised.
        generator: CPU generator for noise and time; a function of (seed, step, micro-step, rank) alone.
    """

    observation: Observation
    actions: Tensor
    generator: torch.Generator

    def to(self, device: torch.device) -> Batch:
        return Batch(self.observation.to(device), self.actions.to(device), self.generator)
