"""Poses of the tool: how states are told, and actions relative to them. No torch here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_POSE = 6
"""Position and axis-angle: what an action may be told relative to; the gripper (dimension 6) never is."""


def tool_frame(state: NDArray[np.floating]) -> NDArray[np.float64]:
    """States (…, 7 or 8) with the tool's orientation told from "pointing down": no jump where LIBERO's tools live.

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


def relative(chunks: NDArray[np.float64], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Chunks (n, H, 7) less the pose of the states (n, 7 or 8) they begin from; the gripper as it is.

    `DeltaAction` of Dexbotic (`data/dataset/transform/action.py`, with `non_delta_mask` 6) and openpi's `DeltaActions`,
    but with the orientation in `tool_frame`: theirs jumps by 2π where a tool that points down turns through it.
    """
    return chunks - _offset(raw)


def resolved(chunks: NDArray[np.floating], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse of `relative`."""
    return chunks + _offset(raw)


def _offset(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    pose = tool_frame(raw)[..., None, :_POSE]
    return np.concatenate([pose, np.zeros((*pose.shape[:-1], 1))], -1)
