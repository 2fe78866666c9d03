"""pi0 (Black et al., arXiv 2410.24164): a Gemma VLM and an action expert, coupled layer by layer.

The published model has a SigLIP tower; the small sizes put a few convolutions in its place and change nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GemmaConfig, SiglipVisionConfig, SiglipVisionModel
from transformers.models.gemma.modeling_gemma import GemmaDecoderLayer, GemmaRMSNorm

from harness.data.batch import Batch, Observation
from harness.data.shape import InputShape
from harness.models.base import VLA, FSDPProfile
from harness.models.joint import JointLayer, KeyValue, Layout, draw_times, layout, noisy_actions, time_embedding


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


@dataclass(frozen=True)
class Pi0Config:
    """Sizes of a pi0. `heads`, `kv_heads` and `head_dim` are common to VLM and expert."""

    shape: InputShape
    vision: StemConfig | SiglipConfig
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    ffn: int
    expert_width: int
    expert_ffn: int
    euler_steps: int = 10


class ConvStem(nn.Module):
    """Images (N, 3, H, W) to tokens (N, T, channels[-1])."""

    def __init__(self, config: StemConfig, image_size: int) -> None:
        super().__init__()
        inputs = (3, *config.channels[:-1])
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride=2, padding=1)
            for before, after in zip(inputs, config.channels, strict=True)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(8, channels) for channels in config.channels)
        self.tokens = (image_size // 2 ** len(config.channels)) ** 2

    def forward(self, images: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            images = F.silu(norm(convolution(images)))
        return images.flatten(2).transpose(1, 2)


class SiglipTower(nn.Module):
    """Images (N, 3, H, W) to tokens (N, T, VLM width): transformers' SigLIP and PaliGemma's linear projector."""

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
        self.tower = SiglipVisionModel(siglip)
        self.projector = nn.Linear(config.width, width)
        self.tokens = (image_size // config.patch) ** 2

    def forward(self, images: Tensor) -> Tensor:
        return self.projector(self.tower(pixel_values=images).last_hidden_state)


class Pi0(VLA):
    """See the module. All parameters that reach the loss are trainable; see `JointLayer` for those that do not."""

    tokens_definition = (
        "positions through the joint transformer per sample: image tokens of every camera slot, missing ones too, "
        "plus text slots, padding included, plus one state token, plus one token per action of the chunk"
    )

    def __init__(self, config: Pi0Config) -> None:
        super().__init__()
        self.config, self.shape = config, config.shape
        siglip = isinstance(config.vision, SiglipConfig)
        self.profile = FSDPProfile(("JointLayer", "SiglipEncoderLayer") if siglip else ("JointLayer",))
        self.vision = _vision(config)
        self.embed_tokens = nn.Embedding(config.shape.vocabulary, config.width)
        nn.init.normal_(self.embed_tokens.weight, std=config.width**-0.5)
        vlm, expert = _gemma(config, config.width, config.ffn), _gemma(config, config.expert_width, config.expert_ffn)
        self.layers = nn.ModuleList(
            JointLayer(GemmaDecoderLayer(vlm, i), GemmaDecoderLayer(expert, i), last=i == config.layers - 1)
            for i in range(config.layers)
        )
        self.norm = GemmaRMSNorm(config.expert_width, eps=expert.rms_norm_eps)
        self.state_proj = nn.Linear(config.shape.state_dim, config.expert_width)
        self.action_in_proj = nn.Linear(config.shape.action_dim, config.expert_width)
        self.action_time_mlp_in = nn.Linear(2 * config.expert_width, config.expert_width)
        self.action_time_mlp_out = nn.Linear(config.expert_width, config.expert_width)
        self.action_out_proj = nn.Linear(config.expert_width, config.shape.action_dim)

    def forward(self, batch: Batch) -> Tensor:
        device, count = batch.actions.device, len(batch.actions)
        time = draw_times(count, batch.generator).to(device)
        noise = self.noise(count, batch.generator).to(device)
        return self.loss(batch.observation, batch.actions, noise, time)

    def loss(self, observation: Observation, actions: Tensor, noise: Tensor, time: Tensor) -> Tensor:
        """Mean squared error of the velocity, over all positions and dimensions, padded ones included (openpi).

        Args:
            actions, noise: float32 (B, H, A).
            time: float32 (B,) in (0, 1].
        """
        point, velocity = noisy_actions(actions, noise, time)
        prefix, valid = self._prefix(observation)
        suffix = self._suffix(observation.state, point, time, prefix.dtype)
        where = self._layout(valid, prefix.dtype)
        for layer in self.layers:
            prefix, suffix, _ = layer(prefix, suffix, where)
        return F.mse_loss(self._velocity(suffix), velocity)

    def noise(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, self.shape.chunk, self.shape.action_dim, generator=generator, dtype=torch.float32)

    @torch.no_grad()
    def denoise(self, observation: Observation, noise: Tensor) -> Tensor:
        """Euler steps along the velocity from t = 1 (noise) to t = 0; the prefix is computed once."""
        prefix, valid = self._prefix(observation)
        dtype = prefix.dtype
        where = self._layout(valid, dtype)
        caches: list[KeyValue | None] = []
        for layer in self.layers:
            prefix, _, cache = layer(prefix, None, where)
            caches.append(cache)
        point = noise.to(observation.state.device)
        stride = -1.0 / self.config.euler_steps
        for step in range(self.config.euler_steps):
            time = torch.full((len(point),), 1.0 + step * stride, device=point.device)
            suffix = self._suffix(observation.state, point, time, dtype)
            for layer, cache in zip(self.layers, caches, strict=True):
                _, suffix, _ = layer(None, suffix, where, cache)
            point = point + stride * self._velocity(suffix)
        return point

    def tokens_per_sample(self) -> int:
        images = len(self.shape.cameras) * self.vision.tokens
        return images + self.shape.text_slots + 1 + self.shape.chunk

    def _prefix(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Image and text tokens (B, P, width), and which of them are there: bool (B, P)."""
        text = self.embed_tokens(observation.input_ids) * self.config.width**0.5
        images = observation.images.to(text.dtype)
        seen = self.vision(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        masks = observation.image_masks[:, :, None].expand(-1, -1, seen.shape[2]).flatten(1)
        return torch.cat([seen.flatten(1, 2), text], 1), torch.cat([masks, observation.attention_mask], 1)

    def _suffix(self, state: Tensor, point: Tensor, time: Tensor, dtype: torch.dtype) -> Tensor:
        """The state token and one token per noisy action: (B, 1 + H, expert width)."""
        actions = self.action_in_proj(point.to(dtype))
        times = time_embedding(time, self.config.expert_width).to(dtype)[:, None].expand_as(actions)
        mixed = F.silu(self.action_time_mlp_in(torch.cat([actions, times], -1)))
        return torch.cat([self.state_proj(state.to(dtype))[:, None], self.action_time_mlp_out(mixed)], 1)

    def _velocity(self, suffix: Tensor) -> Tensor:
        return self.action_out_proj(self.norm(suffix)[:, -self.shape.chunk :]).float()

    def _layout(self, valid: Tensor, dtype: torch.dtype) -> Layout:
        return layout(valid, 1, self.shape.chunk, self.config.head_dim, dtype)


def _vision(config: Pi0Config) -> ConvStem | SiglipTower:
    if isinstance(config.vision, StemConfig):
        return ConvStem(config.vision, config.shape.image_size)
    return SiglipTower(config.vision, config.shape.image_size, config.width)


def _gemma(config: Pi0Config, width: int, ffn: int) -> GemmaConfig:
    return GemmaConfig(
        hidden_size=width,
        intermediate_size=ffn,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
    )
