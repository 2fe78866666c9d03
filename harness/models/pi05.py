"""pi05 (π0.5, arXiv 2504.16054; openpi's `pi05=True`): pi0 with flow time as the condition of the expert's norms.

It has no state token. The state may stand in the prompt instead (`InputShape.state_in_prompt`), as openpi has it by
default; both openpi and Dexbotic leave it out on LIBERO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.models.families import GEMMA
from harness.models.flops import linear
from harness.models.flow import FlowConfig, FlowVLA
from harness.models.joint import AdaRMSNorm, time_embedding

if TYPE_CHECKING:
    from harness.models.joint import DecoderLayer


class Pi05(FlowVLA):
    """Every norm of the expert is an `AdaRMSNorm`, conditioned on the embedded flow time."""

    family = GEMMA
    state_tokens = 0
    tokens_definition = (
        "positions through the joint transformer per sample: image tokens of every camera slot, missing ones too, "
        "plus text slots, padding included, plus one token per action of the chunk"
    )

    def __init__(self, config: FlowConfig) -> None:
        super().__init__(config)
        width, actions = config.expert_width, config.shape.action_dim
        self.action_in_proj = nn.Linear(actions, width)
        self.time_mlp_in = nn.Linear(width, width)
        self.time_mlp_out = nn.Linear(width, width)
        self.action_out_proj = nn.Linear(width, actions)

    def _suffix(self, state: Tensor, point: Tensor, time: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        embedded = time_embedding(time, self.config.expert_width).to(dtype)
        condition = F.silu(self.time_mlp_out(F.silu(self.time_mlp_in(embedded))))
        return self.action_in_proj(point.to(dtype)), condition

    def _expert_layer(self, layer: DecoderLayer) -> DecoderLayer:
        """The decoder layer with adaptive norms in the place of its own."""
        for name in ("input_layernorm", "post_attention_layernorm"):
            setattr(layer, name, self._expert_norm(layer.self_attn.config.rms_norm_eps))
        return layer

    def _expert_norm(self, eps: float) -> nn.Module:
        return AdaRMSNorm(self.config.expert_width, self.config.expert_width, eps)

    def _projections(self) -> list[nn.Module]:
        return [self.action_in_proj, self.time_mlp_in, self.time_mlp_out, self.action_out_proj]

    def _projection_flops(self) -> int:
        width, norms = self.config.expert_width, 2 * self.config.layers + 1
        once = linear(1, width, 2 * width + norms * 3 * width)
        return once + linear(self.shape.chunk, width, 2 * self.shape.action_dim)
