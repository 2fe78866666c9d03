"""Floating-point operations of a model: counted by PyTorch on `meta`, and by formula from a model's parts.

Both count 2 operations per multiply-add of matrix products, attention and convolutions and nothing else, as PyTorch's
`FlopCounterMode` does. Masked attention counts in full: the kernels compute it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from harness.data.batch import Batch
    from harness.models.base import VLA


def linear(tokens: int, inputs: int, outputs: int) -> int:
    """A matrix of `inputs` × `outputs`, applied to each token."""
    return 2 * tokens * inputs * outputs


def attention(heads: int, head_dim: int, queries: int, keys: int) -> int:
    """Scores and weighted sum of `queries` over `keys`, whatever the mask hides."""
    return 4 * heads * head_dim * queries * keys


def convolution(positions: int, inputs: int, outputs: int, kernel: int) -> int:
    """A square kernel of `inputs` → `outputs` channels at each output position."""
    return linear(positions, inputs * kernel**2, outputs)


def encoder_layer(tokens: int, width: int, ffn: int) -> int:
    """A layer of a vision transformer: four projections and a two-matrix MLP, everybody seeing everybody."""
    return linear(tokens, width, 4 * width + 2 * ffn) + attention(1, width, tokens, tokens)


class Counted(NamedTuple):
    """Operations of one sample."""

    forward: int
    training: int
    """Forward and backward, without what activation checkpointing would compute again."""


def count(model: VLA) -> Counted:
    """Counts one training step of one sample on a model whose parameters are on `meta`.

    Never on CPU tensors: the counter does not know the CPU's attention kernel and would leave it out silently,
    whereas on `meta` attention is decomposed into the products it consists of.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        loss = model(meta_batch(model))
        forward = counter.get_total_flops()
        loss.backward()
    return Counted(forward, counter.get_total_flops())


def meta_batch(model: VLA, samples: int = 1) -> Batch:
    """A batch of a model's shape without content, on `meta`."""
    return blank_batch(model, samples, "meta")


def blank_batch(model: VLA, samples: int, device: str) -> Batch:
    """A batch of a model's shape, all zeros."""
    import torch

    from harness.data.batch import Batch, Observation

    shape = model.shape
    pixels, cameras = shape.image_size, len(shape.cameras)
    with torch.device(device):
        observation = Observation(
            images=torch.zeros(samples, cameras, 3, pixels, pixels),
            image_masks=torch.zeros(samples, cameras, dtype=torch.bool),
            input_ids=torch.zeros(samples, shape.text_slots, dtype=torch.int64),
            attention_mask=torch.zeros(samples, shape.text_slots, dtype=torch.bool),
            state=torch.zeros(samples, shape.state_dim),
        )
        actions = torch.zeros(samples, shape.chunk, shape.action_dim)
    return Batch(observation, actions, torch.Generator().manual_seed(0))
