"""The diffusion transformer that turns one condition vector into a chunk of actions (CogACT, arXiv 2411.19650).

Blocks of a DiT (Peebles and Xie, arXiv 2212.09748) without its adaptive norms: time and condition enter as the first
token, and everybody attends to everybody. Sizes and initial weights are those of CogACT's `dit.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.models.flops import encoder_layer, linear

FREQUENCIES, LONGEST_PERIOD = 256, 10_000.0
"""Width and longest period of the time embedding, from CogACT's `dit.py`."""
INITIAL_STD = 0.02


@dataclass(frozen=True)
class DiTConfig:
    """Size of the head; its MLPs are four times as wide."""

    layers: int
    width: int
    heads: int


DIT_S = DiTConfig(layers=6, width=384, heads=4)
DIT_B = DiTConfig(layers=12, width=768, heads=12)
DIT_L = DiTConfig(layers=24, width=1024, heads=16)


class DiTBlock(nn.Module):
    """Self-attention and MLP on (B, N, width), each behind a norm without parameters."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)
        self.fc1 = nn.Linear(config.width, 4 * config.width)
        self.fc2 = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(_normed(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*qkv.unbind(0))
        x = x + self.proj(attended.transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(_normed(x)), approximate="tanh"))


class DiT(nn.Module):
    """Predicts the noise in noisy actions."""

    def __init__(self, config: DiTConfig, condition_width: int, action_dim: int, chunk: int) -> None:
        super().__init__()
        self.config, self.tokens = config, chunk + 1
        self.action_in = nn.Linear(action_dim, config.width)
        self.time_in = nn.Linear(FREQUENCIES, config.width)
        self.time_out = nn.Linear(config.width, config.width)
        self.condition = nn.Linear(condition_width, config.width)
        self.no_condition = nn.Parameter(torch.empty(1, condition_width))
        self.positions = nn.Parameter(torch.empty(chunk + 1, config.width))
        self.blocks = nn.ModuleList(DiTBlock(config) for _ in range(config.layers))
        self.out = nn.Linear(config.width, action_dim)
        self._initialise()

    def _initialise(self) -> None:
        for block in self.blocks:
            for module in block.children():
                assert isinstance(module, nn.Linear)
                nn.init.xavier_uniform_(module.weight)
        narrow = (self.action_in, self.time_in, self.time_out, self.condition)
        for parameter in (self.no_condition, *(module.weight for module in narrow)):
            nn.init.normal_(parameter, std=INITIAL_STD)
        nn.init.normal_(self.positions, std=self.config.width**-0.5)
        nn.init.zeros_(self.out.weight)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, point: Tensor, time: Tensor, condition: Tensor) -> Tensor:
        """The predicted noise, (B, H, A) in the dtype of `condition`.

        Args:
            point: noisy actions, (B, H, A).
            time: diffusion step of each sample, (B,).
            condition: (B, condition width).
        """
        dtype = condition.dtype
        when = self.time_out(F.silu(self.time_in(time_features(time).to(dtype))))
        first = (when + self.condition(condition))[:, None]
        x = torch.cat([first, self.action_in(point.to(dtype))], 1) + self.positions.to(dtype)
        for block in self.blocks:
            x = block(x)
        return self.out(_normed(x))[:, 1:]

    def forward_flops(self) -> int:
        """Operations of one chunk."""
        width, actions = self.config.width, self.action_in.in_features
        time = linear(1, FREQUENCIES, width) + linear(1, width, width)
        condition = linear(1, self.condition.in_features, width)
        ends = linear(self.tokens - 1, actions, width) + linear(self.tokens, width, actions)
        return time + condition + ends + self.config.layers * encoder_layer(self.tokens, width, 4 * width)


def time_features(time: Tensor) -> Tensor:
    """Cosine and sine of the diffusion step: (B,) to float32 (B, 256)."""
    half = FREQUENCIES // 2
    share = torch.arange(half, dtype=torch.float32, device=time.device) / half
    angle = time[:, None].float() * torch.exp(-math.log(LONGEST_PERIOD) * share)
    return torch.cat([angle.cos(), angle.sin()], 1)


def _normed(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=1e-6)
