"""What pi0, pi05 and dm0 share: a VLM and an action expert coupled layer by layer, trained by flow matching."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.backends.profile import FSDPProfile
from harness.data.batch import Batch, Observation
from harness.data.shape import InputShape
from harness.models.base import VLA
from harness.models.flops import attention, linear
from harness.models.joint import (
    JointLayer,
    KeyValue,
    LayerPair,
    Rules,
    couple,
    draw_times,
    layout,
    noisy_actions,
    normalise,
)
from harness.models.vision import VisionConfig, build_vision

if TYPE_CHECKING:
    from harness.models.joint import DecoderLayer


@dataclass(frozen=True)
class FlowConfig:
    """Sizes of a model. `heads`, `kv_heads` and `head_dim` are common to VLM and expert."""

    shape: InputShape
    vision: VisionConfig
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    ffn: int
    expert_width: int
    expert_ffn: int
    euler_steps: int = 10


class Family(NamedTuple):
    """A line of language models, as far as it matters here.

    Attributes:
        config, decoder_layer, norm: transformers' classes.
        rope_base: `rope_theta` of the published model.
        scales_text: text embeddings are multiplied by the square root of their width.
    """

    config: type[Any]
    decoder_layer: type[Any]
    norm: type[nn.Module]
    rope_base: float
    scales_text: bool


class FlowVLA(VLA):
    """All parameters that reach the loss are trainable; see `LayerPair` for those that do not."""

    family: ClassVar[Family]
    state_tokens: ClassVar[int]
    causal_prefix: ClassVar[bool] = False
    action_out_proj: nn.Linear

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.config, self.shape = config, config.shape
        self.vision = build_vision(config.vision, config.shape.image_size, config.width)
        self.profile = FSDPProfile(("JointLayer", *self.vision.layer_classes))
        self.embed_tokens = nn.Embedding(config.shape.vocabulary, config.width)
        nn.init.normal_(self.embed_tokens.weight, std=config.width**-0.5)
        vlm, expert = self._decoder(config.width, config.ffn), self._decoder(config.expert_width, config.expert_ffn)
        layer = self.family.decoder_layer
        self.layers = nn.ModuleList(
            JointLayer(layer(vlm, i), self._expert_layer(layer(expert, i)), last=i == config.layers - 1)
            for i in range(config.layers)
        )
        self.norm = self._expert_norm(expert.rms_norm_eps)

    def use_raw_layout(self) -> None:
        self.layers = nn.ModuleList(
            LayerPair(layer.vlm, layer.expert, layer.last) for layer in self.layers if isinstance(layer, LayerPair)
        )
        self.profile = FSDPProfile((), recomputed_classes=self.vision.flagged_classes)

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
        suffix, condition = self._suffix(observation.state, point, time, prefix.dtype)
        where = layout(valid, self._rules(), prefix.dtype)
        for layer in self.layers:
            prefix, suffix, _ = self._through(layer)(prefix, suffix, where, condition)
        return F.mse_loss(self._velocity(suffix, condition), velocity)

    def noise(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, self.shape.chunk, self.shape.action_dim, generator=generator, dtype=torch.float32)

    @torch.no_grad()
    def denoise(self, observation: Observation, noise: Tensor) -> Tensor:
        """Euler steps along the velocity from t = 1 (noise) to t = 0; the prefix is computed once."""
        prefix, valid = self._prefix(observation)
        dtype = prefix.dtype
        where = layout(valid, self._rules(), dtype)
        caches: list[KeyValue | None] = []
        for layer in self.layers:
            prefix, _, cache = self._through(layer)(prefix, None, where)
            caches.append(cache)
        point = noise.to(observation.state.device)
        stride = -1.0 / self.config.euler_steps
        for step in range(self.config.euler_steps):
            time = torch.full((len(point),), 1.0 + step * stride, device=point.device)
            suffix, condition = self._suffix(observation.state, point, time, dtype)
            for layer, cache in zip(self.layers, caches, strict=True):
                _, suffix, _ = self._through(layer)(None, suffix, where, condition, cache)
            point = point + stride * self._velocity(suffix, condition)
        return point

    def tokens_per_sample(self) -> int:
        return self._prefix_tokens() + self.state_tokens + self.shape.chunk

    def parts(self) -> dict[str, list[nn.Module]]:
        vlm, expert = ([getattr(layer, name) for layer in self.layers] for name in ("vlm", "expert"))
        return {
            "vision": self.vision.encoder,
            "projector": self.vision.projectors,
            "language": [self.embed_tokens, *vlm],
            "action": [*expert, self.norm, *self._projections()],
        }

    def forward_flops(self) -> int:
        config, prefix, suffix = self.config, self._prefix_tokens(), self.state_tokens + self.shape.chunk
        heads, keys = config.heads * config.head_dim, 2 * config.kv_heads * config.head_dim
        vlm = linear(prefix, config.width, 2 * heads + keys + 3 * config.ffn)
        vlm += attention(config.heads, config.head_dim, prefix, prefix)
        expert = linear(suffix, config.expert_width, 2 * heads + keys + 3 * config.expert_ffn)
        expert += attention(config.heads, config.head_dim, suffix, prefix + suffix)
        layers = (config.layers - 1) * vlm + linear(prefix, config.width, keys) + config.layers * expert
        images = len(self.shape.cameras) * self.vision.forward_flops()
        return images + layers + self._projection_flops()

    @abstractmethod
    def _suffix(self, state: Tensor, point: Tensor, time: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """State and noisy actions as tokens (B, S, expert width), and the condition of adaptive norms."""

    @abstractmethod
    def _projections(self) -> list[nn.Module]:
        """The modules between actions, state and time and the expert."""

    @abstractmethod
    def _projection_flops(self) -> int:
        """Operations of `_projections` for one sample."""

    def _expert_layer(self, layer: DecoderLayer) -> DecoderLayer:
        return layer

    def _expert_norm(self, eps: float) -> nn.Module:
        """The norm after the expert's last layer."""
        return self.family.norm(self.config.expert_width, eps=eps)

    def _decoder(self, width: int, ffn: int) -> Any:
        """transformers' configuration of a language model."""
        return self.family.config(
            hidden_size=width,
            intermediate_size=ffn,
            num_hidden_layers=self.config.layers,
            num_attention_heads=self.config.heads,
            num_key_value_heads=self.config.kv_heads,
            head_dim=self.config.head_dim,
        )

    def _through(self, layer: nn.Module) -> Callable[..., Any]:
        """The forward of a layer: the module itself, or in layout `raw` a function that reads its inner modules."""
        return partial(couple, layer) if type(layer) is LayerPair else layer

    def _prefix(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Image and text tokens (B, P, width), and which of them are there: bool (B, P)."""
        text = self.embed_tokens(observation.input_ids)
        if self.family.scales_text:
            text = text * self.config.width**0.5
        images = observation.images.to(text.dtype)
        seen = self.vision(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        masks = observation.image_masks[:, :, None].expand(-1, -1, seen.shape[2]).flatten(1)
        return torch.cat([seen.flatten(1, 2), text], 1), torch.cat([masks, observation.attention_mask], 1)

    def _prefix_tokens(self) -> int:
        return len(self.shape.cameras) * self.vision.tokens + self.shape.text_slots

    def _velocity(self, suffix: Tensor, condition: Tensor | None) -> Tensor:
        normed, _ = normalise(self.norm, suffix, condition)
        return self.action_out_proj(normed[:, -self.shape.chunk :]).float()

    def _rules(self) -> Rules:
        return Rules(
            self.state_tokens, self.shape.chunk, self.config.head_dim, self.family.rope_base, self.causal_prefix
        )
