"""The suffix of pi0 and dm0: flow time is mixed into every action token by a small MLP (openpi's `embed_suffix`)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.models.flops import linear
from harness.models.flow import FlowConfig, FlowVLA
from harness.models.joint import time_embedding


class TimeMixingVLA(FlowVLA):
    """Where `state_tokens` is 1, the state goes before the actions as a token of its own."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__(config)
        shape, width = config.shape, config.expert_width
        if self.state_tokens:
            self.state_proj = nn.Linear(shape.state_dim, width)
        self.action_in_proj = nn.Linear(shape.action_dim, width)
        self.action_time_mlp_in = nn.Linear(2 * width, width)
        self.action_time_mlp_out = nn.Linear(width, width)
        self.action_out_proj = nn.Linear(width, shape.action_dim)

    def _suffix(self, state: Tensor, point: Tensor, time: Tensor, dtype: torch.dtype) -> tuple[Tensor, None]:
        actions = self.action_in_proj(point.to(dtype))
        times = time_embedding(time, self.config.expert_width).to(dtype)[:, None].expand_as(actions)
        mixed = F.silu(self.action_time_mlp_in(torch.cat([actions, times], -1)))
        tokens = self.action_time_mlp_out(mixed)
        if self.state_tokens:
            tokens = torch.cat([self.state_proj(state.to(dtype))[:, None], tokens], 1)
        return tokens, None

    def _projections(self) -> list[nn.Module]:
        state = [self.state_proj] if self.state_tokens else []
        return [
            *state,
            self.action_in_proj,
            self.action_time_mlp_in,
            self.action_time_mlp_out,
            self.action_out_proj,
        ]

    def _projection_flops(self) -> int:
        shape, width = self.shape, self.config.expert_width
        return linear(self.state_tokens, shape.state_dim, width) + linear(
            shape.chunk, width, 2 * shape.action_dim + 3 * width
        )
