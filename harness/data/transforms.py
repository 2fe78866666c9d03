"""Frames as a model is fed them, and their augmentation in training."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_SHIFT_PIXELS = 1
"""Three pixels of 64 would already be some 5 cm of the table."""
BRIGHTNESS_JITTER = 0.1


def pixels(frames: Tensor) -> Tensor:
    """uint8 0…255 to float32 −1…1."""
    return frames.float() / 127.5 - 1.0


def augment(frames: Tensor, generator: torch.Generator) -> Tensor:
    """`pixels`, each frame shifted by up to one pixel (edges repeated) and up to 10 % brighter or darker.

    Args:
        frames: uint8 (B, cameras, 3, S, S).
    """
    flat = frames.flatten(0, 1)
    count, size = len(flat), flat.shape[-1]
    span = 2 * MAX_SHIFT_PIXELS + 1
    shift = torch.randint(span, (2, count, 1), generator=generator) - MAX_SHIFT_PIXELS
    rows, columns = (torch.arange(size) + shift).clamp(0, size - 1)
    every = torch.arange(count)[:, None, None]
    # Indices split by the colour slice put it last: (N, S, S, 3).
    shifted = flat[every, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    gain = 1 + BRIGHTNESS_JITTER * (2 * torch.rand(count, 1, 1, 1, generator=generator) - 1)
    bright = (shifted.float() * gain).clamp(max=255.0)
    return (bright / 127.5 - 1.0).reshape(frames.shape)
