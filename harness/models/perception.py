"""The Perception Encoder of dm0 (PE-lang L/14, Bolya et al., arXiv 2504.13181) in plain torch.

Sizes and details are those of Dexbotic's `pe_configuration.py` and `pe_model.py` (`PE_LANG_L14_728`): a class token,
learned absolute positions, 2-D rotary embedding, LayerScale, no final norm; then two strided convolutions that make
52 × 52 patches 13 × 13 tokens, four times as wide.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.models.flops import convolution, encoder_layer

ROPE_BASE = 10_000.0
LAYER_SCALE = 0.1
"""Initial LayerScale (arXiv 2103.17239) of PE-lang."""


@dataclass(frozen=True)
class PerceptionConfig:
    """Sizes of a Perception Encoder. The MLP is four times as wide as the encoder."""

    width: int
    layers: int
    heads: int
    patch: int


class PerceptionEncoder(nn.Module):
    """Images (N, 3, H, W) to (N, `tokens`, 4 · width)."""

    def __init__(self, config: PerceptionConfig, image_size: int) -> None:
        super().__init__()
        width = config.width
        self.config, self.grid = config, image_size // config.patch
        self.conv1 = nn.Conv2d(3, width, config.patch, stride=config.patch, bias=False)
        self.class_embedding = nn.Parameter(width**-0.5 * torch.randn(width))
        self.positional_embedding = nn.Parameter(width**-0.5 * torch.randn(1 + self.grid**2, width))
        self.ln_pre = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(PerceptionBlock(width, config.heads) for _ in range(config.layers))
        self.vit_downsampler1 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.vit_downsampler2 = nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1)
        self.tokens = _halved(_halved(self.grid)) ** 2

    def forward(self, images: Tensor) -> Tensor:
        patches = self.conv1(images).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(len(patches), 1, -1)
        x = self.ln_pre(torch.cat([first, patches], 1) + self.positional_embedding)
        rotation = grid_rotation(self.grid, self.config.width // self.config.heads, x)
        for block in self.blocks:
            x = block(x, rotation)
        image = x[:, 1:].transpose(1, 2).unflatten(2, (self.grid, self.grid))
        return self.vit_downsampler2(self.vit_downsampler1(image)).flatten(2).transpose(1, 2)

    def forward_flops(self) -> int:
        """Operations of one image."""
        width, patches = self.config.width, self.grid**2
        layers = self.config.layers * encoder_layer(1 + patches, width, 4 * width)
        down = convolution(_halved(self.grid) ** 2, width, 2 * width, 3)
        return convolution(patches, 3, width, self.config.patch) + layers + down + self._last_convolution_flops()

    def _last_convolution_flops(self) -> int:
        return convolution(self.tokens, 2 * self.config.width, 4 * self.config.width, 3)


class PerceptionBlock(nn.Module):
    """One layer: attention with rotated queries and keys, then an MLP, each scaled per channel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.in_proj, self.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.ls_1 = nn.Parameter(torch.full((width,), LAYER_SCALE))
        self.ls_2 = nn.Parameter(torch.full((width,), LAYER_SCALE))

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        query, key, value = self.in_proj(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key = rotate_pairs(query, rotation), rotate_pairs(key, rotation)
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + self.ls_1 * self.out_proj(attended)
        return x + self.ls_2 * self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


def grid_rotation(grid: int, head_dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine (1 + grid², head_dim) of 2-D RoPE, in `like`'s dtype and on its device.

    The first half of a head turns with the column, the second with the row, both counted from 1; the class token
    stands at (0, 0). Neighbouring channels form a pair.
    """
    steps = torch.arange(0, head_dim // 2, 2, device=like.device, dtype=torch.float32)
    place = torch.arange(1, grid + 1, device=like.device, dtype=torch.float32)
    angle = (place[:, None] * ROPE_BASE ** (-2 * steps / head_dim)).repeat_interleave(2, 1)
    columns, rows = angle.repeat(grid, 1), angle.repeat_interleave(grid, 0)
    angle = F.pad(torch.cat([columns, rows], 1), (0, 0, 1, 0))
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def rotate_pairs(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding with neighbouring channels as pairs: (…, N, head_dim)."""
    cos, sin = rotation
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return x * cos + torch.stack([-odd, even], -1).flatten(-2) * sin


def _halved(size: int) -> int:
    """Output size of a 3 × 3 convolution of stride 2 with padding 1."""
    return (size + 1) // 2
