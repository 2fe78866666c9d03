"""Rotations and point sets, on arrays alone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def axis_angle(quaternion: Array) -> Array:
    """robosuite's axis-angle of a quaternion (xyzw): float64 (3,), radians.

    As in `robosuite.utils.transform_utils.quat2axisangle`: the sign is not normalised where w < 0, and policies
    were trained on that; normalising it first costs OpenVLA-OFT 40 points on libero_10.
    """
    w = min(max(float(quaternion[3]), -1.0), 1.0)
    scale = math.sqrt(1.0 - w * w)
    if scale == 0.0:
        return np.zeros(3)
    return np.asarray(quaternion[:3] * 2.0 * math.acos(w) / scale)


def rotation_vector(rotation: Array) -> Array:
    """The rotation vector (axis times angle in [0, π], radians) of a rotation matrix (3, 3)."""
    cosine = np.clip((np.trace(rotation) - 1.0) / 2.0, -1.0, 1.0)
    angle = float(np.arccos(cosine))
    axis = np.array([rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]])
    length = float(np.linalg.norm(axis))
    if length < 1e-9:
        return np.zeros(3)
    return np.asarray(axis / length * angle)


def yaw_rotation(yaw: float) -> Array:
    """Rotation matrix (3, 3) about the vertical, radians."""
    c, s = np.cos(yaw), np.sin(yaw)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
