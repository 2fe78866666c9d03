"""The joint transformer as its papers draw it: one dense attention over prefix and suffix, nothing left out.

Written from the definitions alone, with transformers' rotary embedding and norms, to check `harness.models.joint`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.models.gemma.modeling_gemma import apply_rotary_pos_emb, repeat_kv

from harness.data.batch import Observation
from harness.models.flow import FlowVLA
from harness.models.joint import AdaRMSNorm


def dense_velocity(
    model: FlowVLA,
    rotary: nn.Module,
    observation: Observation,
    suffix: Tensor,
    condition: Tensor | None,
    starts: list[int],
) -> Tensor:
    """The velocity (B, H, A).

    Args:
        rotary: transformers' rotary embedding of the language model.
        starts: for each position of prefix and suffix 1 where a new block starts, else 0; a position sees its own
            block and those before (openpi's `make_attn_mask`).
    """
    text = model.embed_tokens(observation.input_ids)
    text = text * text.shape[-1] ** 0.5 if model.family.scales_text else text
    views = [model.vision(observation.images[:, camera]) for camera in range(observation.images.shape[1])]
    seen = [
        observation.image_masks[:, camera : camera + 1].expand(-1, view.shape[1]) for camera, view in enumerate(views)
    ]
    x = [torch.cat([*views, text], 1), suffix]
    valid = torch.cat([*seen, observation.attention_mask, torch.ones(suffix.shape[:2], dtype=torch.bool)], 1)
    block = torch.tensor(starts).cumsum(0)
    mask = (block[None, :] <= block[:, None]) & valid[:, None, :] & valid[:, :, None]
    cos, sin = rotary(suffix, valid.long().cumsum(1) - 1)
    for pair in model.layers:
        x = _layer([pair.vlm, pair.expert], x, mask, cos, sin, condition)
    normed, _ = _norm(model.norm, x[1], condition)
    return model.action_out_proj(normed)


def _layer(layers, x: list[Tensor], mask: Tensor, cos: Tensor, sin: Tensor, condition: Tensor | None) -> list[Tensor]:
    normed = [_norm(layer.input_layernorm, part, condition) for layer, part in zip(layers, x, strict=True)]
    query, key, value = (
        torch.cat([_heads(layer.self_attn, name, n) for layer, (n, _) in zip(layers, normed, strict=True)], 2)
        for name in ("q", "k", "v")
    )
    query, key = apply_rotary_pos_emb(query, key, cos, sin)
    groups = query.shape[1] // key.shape[1]
    scores = query @ repeat_kv(key, groups).transpose(2, 3) * query.shape[-1] ** -0.5
    shares = F.softmax(scores.masked_fill(~mask[:, None], -1e30), dim=-1)
    attended = (shares @ repeat_kv(value, groups)).transpose(1, 2).flatten(2).split([part.shape[1] for part in x], 1)
    out = []
    for layer, part, heads, (_, gate) in zip(layers, x, attended, normed, strict=True):
        after = part + layer.self_attn.o_proj(heads) * gate
        inner, inner_gate = _norm(layer.post_attention_layernorm, after, condition)
        out.append(after + layer.mlp(inner) * inner_gate)
    return out


def _heads(attention: nn.Module, name: str, x: Tensor) -> Tensor:
    heads = getattr(attention, f"{name}_proj")(x).unflatten(-1, (-1, attention.head_dim))
    norm = getattr(attention, f"{name}_norm", nn.Identity())
    return norm(heads).transpose(1, 2)


def _norm(norm: nn.Module, x: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor | float]:
    if not isinstance(norm, AdaRMSNorm):
        return norm(x), 1.0
    scale, shift, gate = (norm.dense(condition).unsqueeze(1)).split(x.shape[-1], -1)
    return F.rms_norm(x, x.shape[-1:], eps=norm.eps) * (1 + scale) + shift, gate
