"""The CLIP tower of cogact: patch features of the layer before the last, and a two-layer projector."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import CLIPVisionConfig, CLIPVisionModel

from harness.models.flops import convolution, encoder_layer, linear
from harness.models.vision import Vision


@dataclass(frozen=True)
class ClipConfig:
    """A CLIP vision transformer (Radford et al., arXiv 2103.00020)."""

    width: int
    layers: int
    heads: int
    ffn: int
    patch: int


class ClipProjector(nn.Module):
    """Linear, GELU, linear: LLaVA's `mlp2x_gelu`."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, width)

    def forward(self, features: Tensor) -> Tensor:
        return self.second(F.gelu(self.first(features)))


class ClipTower(Vision):
    """transformers' CLIP as LLaVA and Dexbotic read it: all patches of the second-to-last hidden state.

    The last layer and the norm after it reach no loss. They are part of the published model, so they are kept for
    its checkpoints to pass through whole, frozen, and never run.
    """

    layer_classes = ("CLIPEncoderLayer",)

    def __init__(self, config: ClipConfig, image_size: int, width: int) -> None:
        super().__init__()
        clip = CLIPVisionConfig(
            hidden_size=config.width,
            intermediate_size=config.ffn,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            image_size=image_size,
            patch_size=config.patch,
            attn_implementation="sdpa",
        )
        model = CLIPVisionModel(clip)
        # Before transformers 5 the parts lay one level deeper; names must not depend on the version.
        self.tower = getattr(model, "vision_model", model)
        last = self.tower.encoder.layers.pop(-1)
        self.unread = nn.ModuleDict({str(config.layers - 1): last})
        self.unread.requires_grad_(False)
        self.tower.post_layernorm.requires_grad_(False)
        self.projector = ClipProjector(config.width, width)
        self.config = config
        self.tokens = (image_size // config.patch) ** 2

    @property
    def encoder(self) -> list[nn.Module]:
        return [self.tower, self.unread]

    @property
    def projectors(self) -> list[nn.Module]:
        return [self.projector]

    def forward(self, images: Tensor) -> Tensor:
        embedded = self.tower.pre_layrnorm(self.tower.embeddings(images))
        features = self.tower.encoder(inputs_embeds=embedded).last_hidden_state
        return self.projector(features[:, 1:])  # without the class token

    def forward_flops(self) -> int:
        config, width = self.config, self.projector.second.out_features
        patches = convolution(self.tokens, 3, config.width, config.patch)
        layers = (config.layers - 1) * encoder_layer(self.tokens + 1, config.width, config.ffn)
        return patches + layers + linear(self.tokens, config.width, width) + linear(self.tokens, width, width)
