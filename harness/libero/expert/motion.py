"""From where the hand should be to the 7-D action that moves it there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.libero.geometry import Array, rotation_vector, yaw_rotation

OPEN, CLOSE = -1.0, 1.0

POSITION_SCALE_M = 0.05
ROTATION_SCALE_RAD = 0.5
"""An action of 1 asks for this much (robosuite's `osc_pose.json`, `output_max`)."""

CLEARANCE_M = 0.02
"""Between what is passed over and the lowest of what passes."""
_RAMP_M = 0.015

_POSITION_GAIN = 1.5
_ROTATION_GAIN = 1.5
"""The controller covers about a quarter of a commanded step in one control period, so the error is over-asked; this
much overshoots 20 cm by 4 mm."""

_WRIST_STOP_RAD = 2.75
"""A little before the stop of the Panda's last joint, at 2.8973 either way."""

DOWN = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
"""The gripper site looking straight down, fingers opening along the world's y (robosuite's default orientation)."""


@dataclass(frozen=True)
class HandTarget:
    """Where the hand should be.

    Attributes:
        position: of the gripper site, metres, float64 (3,).
        yaw: of the closing direction from the world's y, radians.
        gripper: −1 open, +1 close.
        speed: largest size of each translation component, in controller units (0, 1].
        rotation: of the gripper site (3, 3), in place of straight down at `yaw`.
    """

    position: Array
    yaw: float
    gripper: float
    speed: float = 1.0
    rotation: Array | None = None


def towards(target: HandTarget, position: Array, rotation: Array, wrist: float = 0.0) -> Array:
    """The action from the hand's pose towards the target: float64 (7,) in [-1, 1].

    The translation is scaled as a whole, so that the hand moves in a straight line. The gripper is symmetric: of the
    two equivalent rotations the nearer one is taken, unless the wrist would end at its stop.

    Args:
        wrist: angle of the arm's last joint, radians.
    """
    step = (target.position - position) * _POSITION_GAIN / POSITION_SCALE_M
    largest = float(np.abs(step).max())
    if largest > target.speed:
        step = step * (target.speed / largest)
    wanted = yaw_rotation(target.yaw) @ DOWN if target.rotation is None else target.rotation
    turn = _turns(wanted, rotation)
    ends = [abs(wrist + float(twin @ rotation[:, 2])) for twin in turn]
    if ends[0] > max(_WRIST_STOP_RAD, abs(wrist)) > ends[1]:
        turn = turn[::-1]
    turned = turn[0] * _ROTATION_GAIN / ROTATION_SCALE_RAD
    return np.concatenate([step, np.clip(turned, -1.0, 1.0), [target.gripper]])


def turn_towards(wanted: Array, rotation: Array) -> Array:
    """The rotation vector (3,), radians, from the hand's rotation to the wanted one or to its twin, the nearer."""
    return _turns(wanted, rotation)[0]


def _turns(wanted: Array, rotation: Array) -> list[Array]:
    """Rotation vectors to the wanted rotation and to its twin, the nearer first."""
    turns = [rotation_vector(twin @ rotation.T) for twin in (wanted, wanted * [-1.0, -1.0, 1.0])]
    return sorted(turns, key=lambda turn: float(np.linalg.norm(turn)))


def sideways(hand: Array, anchor: Array, goal: Array, needed: float) -> Array:
    """Where the hand may be by now (2,) on its way over to a goal, for which it must be `needed` metres high.

    Held at the anchor until it nearly is, not where the hand is: a zero command lets the arm drift.
    """
    share = float(np.clip((hand[2] - (needed - CLEARANCE_M)) / _RAMP_M, 0.0, 1.0))
    return np.asarray(anchor[:2] + share * (goal[:2] - anchor[:2]))
