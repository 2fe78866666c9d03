"""Models of size tiny with no weight at its special initial value, and batches for them."""

from __future__ import annotations

import torch

from harness.data.batch import Batch, Observation
from harness.data.shape import InputShape
from harness.models import build
from harness.models.base import VLA


def tiny(model: str, layout: str = "joint") -> VLA:
    """Norms start at zero or one, gates closed: moved a little, all parameters matter."""
    torch.manual_seed(0)
    built = build(model, "tiny", layout)
    for parameter in built.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return built


def batch_of(shape: InputShape, seed: int = 0, count: int = 2) -> Batch:
    """Random images, words, state and actions; the last words are padding."""
    torch.manual_seed(seed)
    observation = Observation(
        images=torch.rand(count, len(shape.cameras), 3, shape.image_size, shape.image_size) * 2 - 1,
        image_masks=torch.ones(count, len(shape.cameras), dtype=torch.bool),
        input_ids=torch.randint(2, shape.vocabulary, (count, shape.text_slots)),
        attention_mask=(torch.arange(shape.text_slots) < 9).expand(count, -1),
        state=torch.randn(count, shape.state_dim),
    )
    actions = torch.randn(count, shape.chunk, shape.action_dim)
    return Batch(observation, actions, torch.Generator().manual_seed(seed))
