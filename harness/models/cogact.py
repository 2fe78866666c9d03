"""CogACT (Li et al., arXiv 2411.19650) as Dexbotic builds it: CLIP, Qwen2, and a diffusion head on one token.

The language model reads images and text, causally. What it makes of the last valid token is the condition of a
diffusion transformer, which denoises the chunk. The small sizes put a few convolutions in CLIP's place.

Images come before all text, in slots of fixed number; Dexbotic puts them between its system prompt and the
instruction, and makes every batch as long as its longest prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm

from harness.backends.profile import FSDPProfile
from harness.data.batch import Batch, Observation
from harness.data.shape import InputShape
from harness.models.base import VLA
from harness.models.clip import ClipConfig, ClipTower
from harness.models.diffusion import ddim, guided, noisy, signal_shares
from harness.models.dit import DiT, DiTConfig
from harness.models.flops import attention, linear
from harness.models.joint import Rotation, rotary
from harness.models.vision import StemConfig, Vision, build_vision

ROPE_BASE = 1_000_000.0
"""Rotary base of Qwen2.5 (`rope_theta`)."""


@dataclass(frozen=True)
class CogActConfig:
    """Sizes of a cogact, and the settings of its diffusion as Dexbotic has them.

    Attributes:
        repeats: noises and times drawn per sample and step; the language model runs once.
        dropout: how often the condition is replaced by a learnt one, so that guidance has something to differ from.
        guidance: how far sampling goes past the plain prediction, see `harness.models.diffusion.guided`.
    """

    shape: InputShape
    vision: StemConfig | ClipConfig
    layers: int
    heads: int
    kv_heads: int
    width: int
    ffn: int
    head: DiTConfig
    diffusion_steps: int = 100
    repeats: int = 4
    dropout: float = 0.1
    ddim_steps: int = 10
    guidance: float = 1.5


class CogAct(VLA):
    """See the module. Frozen: what follows the features read from CLIP (see `ClipTower`)."""

    tokens_definition = (
        "positions through the language model per sample: image tokens of every camera slot, missing ones too, "
        "plus text slots, padding included; the diffusion head's positions are not counted"
    )

    def __init__(self, config: CogActConfig) -> None:
        super().__init__()
        self.config, self.shape = config, config.shape
        pixels, width = config.shape.image_size, config.width
        self.vision: Vision = (
            ClipTower(config.vision, pixels, width)
            if isinstance(config.vision, ClipConfig)
            else build_vision(config.vision, pixels, width)
        )
        self.profile = FSDPProfile(("Qwen2DecoderLayer", "DiTBlock", *self.vision.layer_classes))
        self.embed_tokens = nn.Embedding(config.shape.vocabulary, width)
        qwen = _qwen(config)
        nn.init.normal_(self.embed_tokens.weight, std=qwen.initializer_range)
        self.layers = nn.ModuleList(Qwen2DecoderLayer(qwen, i) for i in range(config.layers))
        self.norm = Qwen2RMSNorm(width, eps=qwen.rms_norm_eps)
        self.head = DiT(config.head, width, config.shape.action_dim, config.shape.chunk)

    def forward(self, batch: Batch) -> Tensor:
        device, count = batch.actions.device, len(batch.actions) * self.config.repeats
        noise = self.noise(count, batch.generator).to(device)
        time = torch.randint(self.config.diffusion_steps, (count,), generator=batch.generator)
        dropped = torch.rand(count, generator=batch.generator) < self.config.dropout
        return self.loss(batch.observation, batch.actions, noise, time, dropped)

    def loss(self, observation: Observation, actions: Tensor, noise: Tensor, time: Tensor, dropped: Tensor) -> Tensor:
        """Mean squared error of the predicted noise, over all positions and dimensions, padded ones included.

        The second dimension of what is repeated is the sample: repeat r of sample b is number r·B + b.

        Args:
            actions: float32 (B, H, A).
            noise: float32 (R·B, H, A).
            time: int64 (R·B,) on the CPU, each below `diffusion_steps`.
            dropped: bool (R·B,); True where the condition is withheld.
        """
        device, repeats = actions.device, len(noise) // len(actions)
        share = signal_shares(self.config.diffusion_steps)[time].to(device)
        point = noisy(actions.repeat(repeats, 1, 1), noise, share)
        condition = self._condition(observation).repeat(repeats, 1)
        withheld = self.head.no_condition.to(condition.dtype)
        condition = torch.where(dropped.to(device)[:, None], withheld, condition)
        return F.mse_loss(self.head(point, time.to(device), condition).float(), noise)

    def noise(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, self.shape.chunk, self.shape.action_dim, generator=generator, dtype=torch.float32)

    @torch.no_grad()
    def denoise(self, observation: Observation, noise: Tensor) -> Tensor:
        """DDIM steps with guidance; the language model runs once."""
        condition = self._condition(observation)
        both = torch.cat([condition, self.head.no_condition.to(condition.dtype).expand_as(condition)])

        def predict(point: Tensor, step: int) -> Tensor:
            time = torch.full((2 * len(point),), step, device=point.device)
            conditional, unconditional = self.head(point.repeat(2, 1, 1), time, both).float().chunk(2)
            return guided(conditional, unconditional, self.config.guidance)

        start = noise.to(observation.state.device)
        return ddim(predict, start, self.config.diffusion_steps, self.config.ddim_steps)

    def tokens_per_sample(self) -> int:
        return len(self.shape.cameras) * self.vision.tokens + self.shape.text_slots

    def parts(self) -> dict[str, list[nn.Module]]:
        return {
            "vision": self.vision.encoder,
            "projector": self.vision.projectors,
            "language": [self.embed_tokens, *self.layers, self.norm],
            "action": [self.head],
        }

    def forward_flops(self) -> int:
        config, tokens = self.config, self.tokens_per_sample()
        head_dim = config.width // config.heads
        layer = linear(tokens, config.width, 2 * config.width + 2 * config.kv_heads * head_dim + 3 * config.ffn)
        layer += attention(config.heads, head_dim, tokens, tokens)
        images = len(self.shape.cameras) * self.vision.forward_flops()
        return images + config.layers * layer + config.repeats * self.head.forward_flops()

    def _condition(self, observation: Observation) -> Tensor:
        """What the language model makes of each sample's last valid token: (B, width)."""
        text = self.embed_tokens(observation.input_ids)
        images = observation.images.to(text.dtype)
        seen = self.vision(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        masks = observation.image_masks[:, :, None].expand(-1, -1, seen.shape[2]).flatten(1)
        x = torch.cat([seen.flatten(1, 2), text], 1)
        valid = torch.cat([masks, observation.attention_mask], 1)
        mask, rotation = self._layout(valid, x.dtype)
        for layer in self.layers:
            x = layer(x, attention_mask=mask, position_embeddings=rotation)
        last = (valid * torch.arange(valid.shape[1], device=valid.device)).argmax(1)
        return self.norm(x[torch.arange(len(x), device=x.device), last])

    def _layout(self, valid: Tensor, dtype: torch.dtype) -> tuple[Tensor, Rotation]:
        """Whom a token sees, bool (B, 1, P, P), and the rotary embeddings; `valid` is bool (B, P).

        A token sees the valid ones up to itself; itself in any case, which spares softmax an empty row.
        """
        count = valid.shape[1]
        itself = torch.eye(count, dtype=torch.bool, device=valid.device)
        before = torch.ones_like(itself).tril()
        positions = (valid.long().cumsum(1) - 1).clamp(min=0)
        cos, sin = rotary(positions, self.config.width // self.config.heads, dtype, ROPE_BASE)
        return ((valid[:, None, :] & before) | itself)[:, None], (cos[:, 0], sin[:, 0])


def _qwen(config: CogActConfig) -> Qwen2Config:
    return Qwen2Config(
        hidden_size=config.width,
        intermediate_size=config.ffn,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        attn_implementation="sdpa",
    )
