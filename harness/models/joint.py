"""The mixture of two transformers that pi0, pi05 and dm0 share, and their flow matching.

A vision-language model (VLM) reads the prefix (images and text); an action expert of equal depth reads the suffix
(state and noisy actions). In every layer the suffix also attends to the prefix's keys and values; the prefix never
sees the suffix. So the joint attention of Black et al. (pi0, arXiv 2410.24164) over P + S positions is exactly one
of P×P for the prefix and one of S×(P+S) for the suffix, and the prefix can be computed once per look.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers.models.gemma.modeling_gemma import GemmaAttention, GemmaDecoderLayer
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3DecoderLayer

    DecoderLayer: TypeAlias = GemmaDecoderLayer | Qwen3DecoderLayer
    Attention: TypeAlias = GemmaAttention | Qwen3Attention

MIN_PERIOD, MAX_PERIOD = 4e-3, 4.0
"""Periods of the time embedding, from openpi's `pi0.py`."""
TIME_ALPHA, TIME_SCALE, TIME_OFFSET = 1.5, 0.999, 0.001
"""Training times are Beta(1.5, 1)·0.999 + 0.001, from openpi's `pi0.py`."""

Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of the rotary embedding, each (B, 1, N, head_dim)."""
KeyValue = tuple[Tensor, Tensor]
"""Keys and values of a layer's prefix, each (B, kv heads, P, head_dim)."""


class Layout(NamedTuple):
    """Where tokens stand and whom they may attend to.

    Attributes:
        prefix_rotation, suffix_rotation: rotary embeddings of the two parts.
        prefix_mask: bool (B, 1, P, P). suffix_mask: bool (B, 1, S, P+S). True where a query may look.
    """

    prefix_rotation: Rotation
    suffix_rotation: Rotation
    prefix_mask: Tensor
    suffix_mask: Tensor


class AdaRMSNorm(nn.Module):
    """RMS norm whose scale, shift and gate come from a condition, as in pi05's expert (openpi's `gemma.py`).

    n = x / rms(x); the output is n · (1 + scale) + shift, and the residual adds the sublayer's output times gate.
    Starting from zero weights, it is a plain norm with a closed gate.
    """

    def __init__(self, width: int, condition_width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.dense = nn.Linear(condition_width, 3 * width)
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Normed x (B, N, width) and the gate (B, 1, width), from the condition (B, condition width)."""
        scale, shift, gate = self.dense(condition)[:, None].chunk(3, -1)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * (1 + scale.float()) + shift.float()).to(x.dtype), gate


class LayerPair(nn.Module):
    """Layer i of the VLM and layer i of the expert, without a forward of its own: layout `raw`.

    Both are transformers' decoder layers (Gemma's or Qwen3's), used for their parameters; `couple` is the forward,
    since the two must meet in one attention. Head count, key-value heads and head size of the two must be equal.

    Of the last layer's prefix only keys and values are read, so the rest of that VLM layer is frozen: every backend
    then sees the same trainable set, and DDP needs no `find_unused_parameters`.
    """

    vlm: DecoderLayer
    expert: DecoderLayer

    def __init__(self, vlm: DecoderLayer, expert: DecoderLayer, last: bool) -> None:
        super().__init__()
        self.vlm, self.expert, self.last = vlm, expert, last
        if last:
            attention = vlm.self_attn
            unread = [attention.q_proj, attention.o_proj, vlm.mlp, vlm.post_attention_layernorm]
            for module in (*unread, getattr(attention, "q_norm", None)):
                if module is not None:
                    module.requires_grad_(False)


class JointLayer(LayerPair):
    """A pair that is called as one module: the unit to shard, checkpoint or compile (layout `joint`)."""

    def forward(
        self,
        prefix: Tensor | None,
        suffix: Tensor | None,
        layout: Layout,
        condition: Tensor | None = None,
        cache: KeyValue | None = None,
    ) -> tuple[Tensor | None, Tensor | None, KeyValue | None]:
        """See `couple`."""
        return couple(self, prefix, suffix, layout, condition, cache)


def couple(
    pair: LayerPair,
    prefix: Tensor | None,
    suffix: Tensor | None,
    layout: Layout,
    condition: Tensor | None = None,
    cache: KeyValue | None = None,
) -> tuple[Tensor | None, Tensor | None, KeyValue | None]:
    """One layer of training (both parts), prefill (no suffix) or denoising (no prefix, but its cache).

    Args:
        prefix: (B, P, VLM width), or None when `cache` holds this layer's keys and values.
        suffix: (B, S, expert width), or None to fill the cache only.
        condition: (B, condition width), when the expert's norms are `AdaRMSNorm`.

    Returns:
        The two parts after the layer (None for the prefix after the last layer), and in prefill the cache.
    """
    vlm, expert, filling = pair.vlm, pair.expert, suffix is None
    if prefix is not None:
        normed, _ = normalise(vlm.input_layernorm, prefix, None)
        cache = _keys_values(vlm.self_attn, normed, layout.prefix_rotation)
        if pair.last:
            prefix = None
        else:
            query = _queries(vlm.self_attn, normed, layout.prefix_rotation)
            prefix = _residual(vlm, prefix, _attend(query, *cache, layout.prefix_mask), None, None)
    if suffix is not None and cache is not None:
        normed, gate = normalise(expert.input_layernorm, suffix, condition)
        query = _queries(expert.self_attn, normed, layout.suffix_rotation)
        key, value = _keys_values(expert.self_attn, normed, layout.suffix_rotation)
        key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
        suffix = _residual(expert, suffix, _attend(query, key, value, layout.suffix_mask), gate, condition)
    return prefix, suffix, cache if filling else None


def normalise(norm: nn.Module, x: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """x after a norm, plain or adaptive, and the gate of an adaptive one."""
    if isinstance(norm, AdaRMSNorm):
        assert condition is not None
        normed, gate = norm(x, condition)
        return normed, gate
    return norm(x), None


def _split_heads(x: Tensor, head_dim: int) -> Tensor:
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def _rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotary embedding in the half-split form of Gemma and Llama."""
    cos, sin = rotation
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def _queries(attention: Attention, normed: Tensor, rotation: Rotation) -> Tensor:
    return _rotate(
        _head_norm(attention, "q_norm", _split_heads(attention.q_proj(normed), attention.head_dim)), rotation
    )


def _keys_values(attention: Attention, normed: Tensor, rotation: Rotation) -> KeyValue:
    key = _head_norm(attention, "k_norm", _split_heads(attention.k_proj(normed), attention.head_dim))
    return _rotate(key, rotation), _split_heads(attention.v_proj(normed), attention.head_dim)


def _head_norm(attention: Attention, name: str, x: Tensor) -> Tensor:
    """Qwen3 norms the channels of each head before rotating them; Gemma does not."""
    norm = getattr(attention, name, None)
    return x if norm is None else norm(x)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Grouped-query attention: (B, heads, Q, D) on (B, kv heads, K, D) gives (B, Q, heads·D)."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    return F.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).flatten(2)


def _residual(
    layer: DecoderLayer, x: Tensor, attended: Tensor, gate: Tensor | None, condition: Tensor | None
) -> Tensor:
    """What follows attention in a decoder layer: output projection, MLP, and the two sums."""
    x = _gated_sum(x, layer.self_attn.o_proj(attended), gate)
    normed, gate = normalise(layer.post_attention_layernorm, x, condition)
    return _gated_sum(x, layer.mlp(normed), gate)


def _gated_sum(x: Tensor, y: Tensor, gate: Tensor | None) -> Tensor:
    return x + y if gate is None else x + y * gate


def rotary(positions: Tensor, head_dim: int, dtype: torch.dtype, base: float) -> Rotation:
    """Rotary embedding (RoPE, arXiv 2104.09864) of int positions (B, N), computed in float32."""
    frequency = base ** (-torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim)
    angle = positions[:, None, :, None].float() * frequency
    angle = torch.cat([angle, angle], -1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


class Rules(NamedTuple):
    """What decides a model's layout besides its input.

    Attributes:
        state_tokens: state tokens at the head of the suffix, which do not see the actions.
        action_tokens: actions, which see each other and all before.
        causal_prefix: each prefix token sees those before it only (dm0), instead of the whole prefix (pi0, pi05).
        rope_base: `rope_theta` of the language model.
    """

    state_tokens: int
    action_tokens: int
    head_dim: int
    rope_base: float
    causal_prefix: bool = False


def layout(valid: Tensor, rules: Rules, dtype: torch.dtype) -> Layout:
    """Positions and masks: prefix, state and actions are blocks, each seeing itself and those before.

    Args:
        valid: bool (B, P); False on padding and on missing cameras, which take no position and are never seen.
    """
    count, suffix, device = valid.shape[1], rules.state_tokens + rules.action_tokens, valid.device
    positions = valid.long().cumsum(1) - 1
    # Padding before the first valid token would stand at −1; nobody sees it, so 0 does as well.
    prefix_rotation = rotary(positions.clamp(min=0), rules.head_dim, dtype, rules.rope_base)
    first = valid.long().sum(1, keepdim=True)
    suffix_rotation = rotary(first + torch.arange(suffix, device=device), rules.head_dim, dtype, rules.rope_base)
    seen = valid[:, None, None, :]
    prefix_mask = seen.expand(-1, 1, count, -1)
    if rules.causal_prefix:
        past = torch.ones(count, count, dtype=torch.bool, device=device).tril()
        # Nobody reads a padded query, so it may look anywhere, which spares softmax an empty row.
        prefix_mask = (prefix_mask & past) | ~valid[:, None, :, None]
    block = torch.arange(suffix, device=device) >= rules.state_tokens
    within = block[:, None] >= block[None, :]
    suffix_mask = torch.cat(
        [seen.expand(-1, 1, suffix, -1), within.expand(len(valid), 1, suffix, suffix)],
        -1,
    )
    return Layout(prefix_rotation, suffix_rotation, prefix_mask, suffix_mask)


def time_embedding(time: Tensor, width: int) -> Tensor:
    """Sine and cosine of flow time, float32 (B,) to (B, width); after `posemb_sincos` of openpi's `pi0.py`."""
    share = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float32, device=time.device)
    angle = time[:, None] * (2 * math.pi / (MIN_PERIOD * (MAX_PERIOD / MIN_PERIOD) ** share))
    return torch.cat([angle.sin(), angle.cos()], 1)


def draw_times(count: int, generator: torch.Generator) -> Tensor:
    """Training times, float32 (count,) on the CPU.

    Beta(a, 1) has the distribution function u = t^a, so one uniform number gives one time.
    """
    uniform = torch.rand(count, generator=generator, dtype=torch.float32)
    return uniform ** (1 / TIME_ALPHA) * TIME_SCALE + TIME_OFFSET


def noisy_actions(actions: Tensor, noise: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """The point x_t = t·ε + (1−t)·a on the straight path to noise, and its velocity u = ε − a (float32).

    Flow matching as in pi0 (arXiv 2410.24164), with openpi's direction of time: t = 1 is noise.
    """
    weight = time[:, None, None]
    return weight * noise + (1 - weight) * actions, noise - actions
