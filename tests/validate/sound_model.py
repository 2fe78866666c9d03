"""A small model that keeps the whole contract, built so that a heir can break one rule of it at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.backends.profile import FSDPProfile
from harness.data.shape import InputShape
from harness.models.base import VLA

SHAPE = InputShape(
    cameras=("agentview",), image_size=8, text_slots=4, vocabulary=16, state_dim=8, action_dim=7, chunk=2
)
WIDTH = 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(x)))


class Sound(VLA):
    """Pixels, words and state are summed, go through two blocks, and become a chunk of actions."""

    tokens_definition = "one position per sample"
    profile = FSDPProfile(("Block",))

    def __init__(self) -> None:
        super().__init__()
        self.shape = SHAPE
        self.vision = nn.Conv2d(3, WIDTH, 8)
        self.projector = nn.Linear(WIDTH, WIDTH)
        self.words = nn.Embedding(SHAPE.vocabulary, WIDTH)
        self.state = nn.Linear(SHAPE.state_dim, WIDTH)
        self.blocks = nn.ModuleList(self.block() for _ in range(2))
        self.head = nn.Linear(WIDTH, SHAPE.chunk * SHAPE.action_dim)

    def block(self) -> nn.Module:
        return Block()

    def dtype(self) -> torch.dtype:
        return self.words.weight.dtype

    def see(self, images: Tensor) -> Tensor:
        return self.projector(self.vision(images[:, 0].to(self.dtype())).flatten(1))

    def through(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def predict(self, x: Tensor) -> Tensor:
        return self.head(x).float()

    def forward(self, batch) -> Tensor:
        seen = batch.observation
        x = self.see(seen.images) + self.words(seen.input_ids).sum(1) + self.state(seen.state.to(self.dtype()))
        return F.l1_loss(self.predict(self.through(x)), batch.actions.flatten(1))

    def noise(self, count, generator):
        return torch.empty(count, 0)

    def denoise(self, observation, noise):
        raise AssertionError("no rule samples actions")

    def parts(self):
        return {"action": [self]}

    def forward_flops(self):
        return 1

    def tokens_per_sample(self):
        return 1
