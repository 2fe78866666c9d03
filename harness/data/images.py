"""Frames resized to what a model looks at. No torch here."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=16)
def _box_weights(before: int, after: int) -> NDArray[np.float32]:
    """(after, before): how much of each input pixel lies under each output pixel; rows sum to 1."""
    edges = np.arange(after + 1) * (before / after)
    pixels = np.arange(before)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights = np.clip(overlap, 0, None)
    return np.asarray(weights / weights.sum(1, keepdims=True), np.float32)


def resize(frames: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Box-averaged square frames: uint8 (F, H, W, 3) to (F, size, size, 3); black bars where they were not square.

    Every output pixel is the mean of the area it covers. Frames are resized one by one, so the result does not
    depend on how many come together. Bars are as in openpi's `resize_with_pad`: half on each side.
    """
    height, width = frames.shape[1:3]
    if (height, width) == (size, size):
        return frames
    inner = [max(1, round(side * size / max(height, width))) for side in (height, width)]
    rows, columns = _box_weights(height, inner[0]), _box_weights(width, inner[1])
    top, left = ((size - side) // 2 for side in inner)
    resized = np.zeros((len(frames), size, size, 3), np.uint8)
    for number, frame in enumerate(frames):
        small = rows @ frame.transpose(2, 0, 1).astype(np.float32) @ columns.T
        filled = np.clip(np.rint(small), 0, 255).transpose(1, 2, 0)
        resized[number, top : top + inner[0], left : left + inner[1]] = filled
    return resized
