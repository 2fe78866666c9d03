"""From what the simulator gives to what a model is fed: the same functions in training and in evaluation."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MAX_SHIFT_PIXELS = 1
"""Three pixels of 64 would already be some 5 cm of the table."""
BRIGHTNESS_JITTER = 0.1


@lru_cache(maxsize=16)
def _box_weights(before: int, after: int) -> NDArray[np.float32]:
    """(after, before): how much of each input pixel lies under each output pixel; rows sum to 1."""
    edges = np.arange(after + 1) * (before / after)
    pixels = np.arange(before)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights = np.clip(overlap, 0, None)
    return np.asarray(weights / weights.sum(1, keepdims=True), np.float32)


def resize(frames: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Box-averaged square frames: uint8 (F, H, W, 3) to (F, size, size, 3).

    Every output pixel is the mean of the area it covers. Frames are resized one by one, so the result does not
    depend on how many come together.
    """
    height, width = frames.shape[1:3]
    if (height, width) == (size, size):
        return frames
    rows, columns = _box_weights(height, size), _box_weights(width, size)
    resized = np.empty((len(frames), size, size, 3), np.uint8)
    for number, frame in enumerate(frames):
        narrow = np.tensordot(rows, frame.astype(np.float32), (1, 0))
        small = np.tensordot(columns, narrow, (1, 1)).swapaxes(0, 1)
        resized[number] = np.clip(np.rint(small), 0, 255)
    return resized


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


def tool_frame(state: NDArray[np.floating]) -> NDArray[np.float64]:
    """States (…, 8) with the tool's orientation told from "pointing down": no jump where LIBERO's tools live.

    A tool pointing down is a half turn about x: its axis-angle is near (±π, 0, 0), and the sign flips at random.
    The rotation vector of R(π, 0, 0)ᵀ·R is near zero there, and continuous up to half a turn away.
    """
    state = np.asarray(state, dtype=np.float64)
    rotation = state[..., 3:6]
    angle = np.linalg.norm(rotation, axis=-1, keepdims=True)
    vector = rotation * (0.5 * np.sinc(angle / (2 * np.pi)))
    scalar = np.cos(angle / 2)
    # Quaternion product with the conjugate of a half turn about x, (w; x, y, z) = (0; −1, 0, 0).
    x, y, z = (vector[..., axis : axis + 1] for axis in range(3))
    turned = np.concatenate([-scalar, z, -y], -1)
    real = np.where(x < 0, -1.0, 1.0)  # q and −q are one rotation; the one with w ≥ 0 turns by less than π
    turned, scalar = turned * real, np.abs(x)
    sine = np.linalg.norm(turned, axis=-1, keepdims=True)
    half = np.arctan2(sine, scalar)
    factor = np.where(sine > 1e-9, 2 * half / np.maximum(sine, 1e-9), 2.0)
    return np.concatenate([state[..., :3], turned * factor, state[..., 6:]], -1)
