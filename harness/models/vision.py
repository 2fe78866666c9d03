"""Vision towers: from the images of one camera slot to tokens as wide as the language model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import SiglipVisionConfig, SiglipVisionModel

from harness.models.flops import convolution, encoder_layer, linear
from harness.models.perception import PerceptionConfig, PerceptionEncoder


@dataclass(frozen=True)
class StemConfig:
    """Stride-2 convolutions from pixels to one token per 2^n × 2^n patch; the last is as wide as the VLM."""

    channels: tuple[int, ...]


@dataclass(frozen=True)
class SiglipConfig:
    """A SigLIP vision transformer without its pooling head."""

    width: int
    layers: int
    heads: int
    ffn: int
    patch: int


VisionConfig = StemConfig | SiglipConfig | PerceptionConfig


class Vision(nn.Module, ABC):
    """Images (N, 3, H, W) to tokens (N, `tokens`, width of the VLM).

    Attributes:
        tokens: tokens per image.
        layer_classes: names of the module classes that are called once per layer.
        flagged_classes: those of them that transformers' own activation checkpointing flag reaches.
    """

    tokens: int
    layer_classes: tuple[str, ...] = ()
    flagged_classes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def encoder(self) -> list[nn.Module]:
        """What sees pixels."""

    @property
    @abstractmethod
    def projectors(self) -> list[nn.Module]:
        """What makes its features as wide as the language model; none when they already are."""

    @abstractmethod
    def forward_flops(self) -> int:
        """Operations of one image."""


class ConvStem(Vision):
    """A few convolutions in a tower's place: what the small sizes learn with on a CPU."""

    def __init__(self, config: StemConfig, image_size: int) -> None:
        super().__init__()
        inputs = (3, *config.channels[:-1])
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride=2, padding=1)
            for before, after in zip(inputs, config.channels, strict=True)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(8, channels) for channels in config.channels)
        self.config, self.image_size = config, image_size
        self.tokens = (image_size // 2 ** len(config.channels)) ** 2

    @property
    def encoder(self) -> list[nn.Module]:
        return [self]

    @property
    def projectors(self) -> list[nn.Module]:
        return []

    def forward(self, images: Tensor) -> Tensor:
        for layer, norm in zip(self.convolutions, self.norms, strict=True):
            images = F.silu(norm(layer(images)))
        return images.flatten(2).transpose(1, 2)

    def forward_flops(self) -> int:
        inputs = (3, *self.config.channels[:-1])
        return sum(
            convolution((self.image_size // 2**number) ** 2, before, after, 3)
            for number, (before, after) in enumerate(zip(inputs, self.config.channels, strict=True), 1)
        )


class SiglipTower(Vision):
    """transformers' SigLIP and PaliGemma's linear projector."""

    layer_classes = flagged_classes = ("SiglipEncoderLayer",)

    def __init__(self, config: SiglipConfig, image_size: int, width: int) -> None:
        super().__init__()
        siglip = SiglipVisionConfig(
            hidden_size=config.width,
            intermediate_size=config.ffn,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            image_size=image_size,
            patch_size=config.patch,
            vision_use_head=False,
        )
        model = SiglipVisionModel(siglip)
        # Before transformers 5 the parts lay one level deeper; names must not depend on the version.
        self.tower = getattr(model, "vision_model", model)
        self.projector = nn.Linear(config.width, width)
        self.config = config
        self.tokens = (image_size // config.patch) ** 2

    @property
    def encoder(self) -> list[nn.Module]:
        return [self.tower]

    @property
    def projectors(self) -> list[nn.Module]:
        return [self.projector]

    def forward(self, images: Tensor) -> Tensor:
        return self.projector(self.tower(pixel_values=images).last_hidden_state)

    def forward_flops(self) -> int:
        config, projector = self.config, self.projector
        patches = convolution(self.tokens, 3, config.width, config.patch)
        layers = config.layers * encoder_layer(self.tokens, config.width, config.ffn)
        return patches + layers + linear(self.tokens, projector.in_features, projector.out_features)


class PerceptionTower(Vision):
    """The Perception Encoder with its two convolutions, and dm0's linear projector (Dexbotic's `linear4x`)."""

    layer_classes = ("PerceptionBlock",)

    def __init__(self, config: PerceptionConfig, image_size: int, width: int) -> None:
        super().__init__()
        self.tower = PerceptionEncoder(config, image_size)
        self.projector = nn.Linear(4 * config.width, width, bias=False)
        self.tokens = self.tower.tokens

    @property
    def encoder(self) -> list[nn.Module]:
        return [self.tower]

    @property
    def projectors(self) -> list[nn.Module]:
        return [self.projector]

    def forward(self, images: Tensor) -> Tensor:
        return self.projector(self.tower(images))

    def forward_flops(self) -> int:
        projected = linear(self.tokens, self.projector.in_features, self.projector.out_features)
        return self.tower.forward_flops() + projected


def build_vision(config: VisionConfig, image_size: int, width: int) -> Vision:
    """The tower of a configuration, for square images, ending at the VLM's `width`."""
    match config:
        case StemConfig():
            return ConvStem(config, image_size)
        case SiglipConfig():
            return SiglipTower(config, image_size, width)
        case PerceptionConfig():
            return PerceptionTower(config, image_size, width)
