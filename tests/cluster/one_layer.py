"""A model of one layer, named in suites as `one_layer:build`: it starts fast, and trains fast."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.backends.profile import FSDPProfile
from harness.data.batch import Batch, Observation
from harness.data.shape import InputShape
from harness.models.base import VLA


class OneLayer(VLA):
    profile = FSDPProfile(("Linear",))
    tokens_definition = "one per sample"
    shape = InputShape(
        cameras=("agentview",), image_size=8, text_slots=4, vocabulary=16, state_dim=8, action_dim=7, chunk=2
    )

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 14)

    def forward(self, batch: Batch) -> Tensor:
        return (self.layer(batch.observation.state) - batch.actions.flatten(1)).square().mean()

    def noise(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, 2, 7, generator=generator)

    def denoise(self, observation: Observation, noise: Tensor) -> Tensor:
        return self.layer(observation.state).reshape(-1, 2, 7)

    def parts(self) -> dict[str, list[nn.Module]]:
        return {"vision": [], "projector": [], "language": [], "action": [self.layer]}

    def forward_flops(self) -> int:
        return 2 * 8 * 14

    def tokens_per_sample(self) -> int:
        return 1


def build(size: str) -> OneLayer:
    return OneLayer()
