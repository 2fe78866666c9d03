"""What the trainer and the evaluator ask of a model. A model knows nothing of backends but its profile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from harness.backends.profile import FSDPProfile
from harness.data.batch import Batch, Observation
from harness.data.shape import InputShape
from harness.errors import BadInput

FREEZABLE = {"vision": ("vision",), "vlm": ("vision", "projector", "language")}
"""What a suite may freeze (`CellSettings.frozen`) → the parts it consists of."""


class VLA(nn.Module, ABC):
    """Base of every model: a loss from a batch, actions from an observation. Built as `cls(config)`.

    `forward` computes noise, time and the loss in float32, so that only the matmul dtype depends on a backend,
    and draws all randomness from `batch.generator`. Parameters the loss cannot reach have `requires_grad=False`.
    """

    profile: FSDPProfile
    shape: InputShape
    tokens_definition: str

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Mean loss of the batch: a float32 scalar."""

    @abstractmethod
    def noise(self, count: int, generator: torch.Generator) -> Tensor:
        """What sampling of `count` chunks starts from: float32 on the CPU, first dimension `count`."""

    @abstractmethod
    def denoise(self, observation: Observation, noise: Tensor) -> Tensor:
        """Normalised action chunks, float32 (B, H, A), from `noise(B, …)`: a function of its arguments alone."""

    def use_raw_layout(self) -> None:
        """Turns to layout `raw`: layers driven from the root's forward, as in Dexbotic. The parameters stay.

        Raises:
            BadInput: the model has no such layout.
        """
        raise BadInput("models", "layout", "raw", f'"joint": {type(self).__name__} calls its layers as modules')

    def freeze(self, names: Iterable[str]) -> None:
        """Takes parts out of training, for good; `names` are keys of `FREEZABLE`."""
        parts = self.parts()
        for part in (part for name in names for part in FREEZABLE[name]):
            for module in parts[part]:
                module.requires_grad_(False)

    def sample(self, observation: Observation, generator: torch.Generator) -> Tensor:
        """Normalised action chunks: float32 (B, H, A)."""
        return self.denoise(observation, self.noise(len(observation.state), generator))

    @abstractmethod
    def parts(self) -> dict[str, list[nn.Module]]:
        """Every parameter once: by `vision` (what sees pixels), `projector`, `language` and `action`."""

    @abstractmethod
    def forward_flops(self) -> int:
        """Operations of one sample's forward, by formula (`harness.models.flops`); training takes three times that."""

    @abstractmethod
    def tokens_per_sample(self) -> int:
        """Positions processed per sample, from the batch layout (see `tokens_definition`)."""
