"""Where to grip: a search over top-down grasps that neither finger nor palm collides with anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.libero.geometry import Array, yaw_rotation
from harness.libero.world import World

# Panda gripper of robosuite 1.4, open, about its gripper site; measured on its collision shapes. Metres.
FINGERTIP_BELOW_M = 0.0095
PALM_ABOVE_M = 0.030
_PAD_HALF_WIDTH = 0.009
_FINGER_HALF_WIDTH = 0.014
_FINGER_INNER, _FINGER_OUTER = 0.0385, 0.067
_PALM_HALF_WIDTH, _PALM_HALF_LENGTH = 0.038, 0.106

_YAWS = np.deg2rad([0, 15, -15, 30, -30, 45, -45, 60, -60, 75, -75, 90])
_GRID_M = 0.006
_DEPTHS_M = (0.026, 0.018, 0.010)
"""Gripper site below the top of what is gripped: the deepest that is free is taken."""
_LEAST_BITE_M = 0.006
_MARGIN_M = 0.002
_YAW_COST_M = 0.012
"""A radian of yaw is worth this much distance from the object's middle: straight grasps are easier to imitate."""
_TIGHT_COST = 0.5


@dataclass(frozen=True)
class Grasp:
    """A top-down grasp in the object's own frame, so that it moves with the object.

    Attributes:
        offset: gripper site minus object origin, in the object's frame, metres (3,).
        closing: closing direction of the fingers, in the object's frame (3,).
    """

    offset: Array
    closing: Array

    def at(self, world: World, name: str) -> tuple[Array, float]:
        """Gripper site position (3,) in metres and yaw in radians, with the object where it is now."""
        rotation = world.rotation(name)
        closing = rotation @ self.closing
        yaw = float(np.arctan2(-closing[0], closing[1]))
        return world.position(name) + rotation @ self.offset, _wrap_half_turn(yaw)


@dataclass(frozen=True)
class _Boxes:
    """Axis-aligned boxes of collision shapes: lows and highs, (n, 3)."""

    low: Array
    high: Array


def plan_grasps(world: World, name: str, most: int = 6) -> list[Grasp]:
    """Free grasps of an object, best first, each clearly different from the ones before. Empty when there is none."""
    own = world.shapes(name)
    others = _other_shapes(world, name)
    found: list[tuple[float, Array, float]] = []
    for yaw in _YAWS:
        found += _search(own, others, float(yaw), world.position(name)[:2])
    found.sort(key=lambda item: item[0])
    position, rotation = world.position(name), world.rotation(name)
    chosen: list[Grasp] = []
    sites: list[tuple[Array, float]] = []
    for _, site, yaw in found:
        if all(np.linalg.norm(site - other) > 0.02 or abs(yaw - turn) > 0.25 for other, turn in sites):
            sites.append((site, yaw))
            closing = np.array([-np.sin(yaw), np.cos(yaw), 0.0])
            chosen.append(Grasp(rotation.T @ (site - position), rotation.T @ closing))
        if len(chosen) == most:
            break
    return chosen


def _search(own: Array, others: list[Array], yaw: float, middle: Array) -> list[tuple[float, Array, float]]:
    """Free grasps at one yaw: (cost, gripper site in the world, yaw)."""
    turn = yaw_rotation(yaw)
    mine, obstacles = _boxes([own], turn), _boxes(others, turn)
    everything = _Boxes(np.concatenate([mine.low, obstacles.low]), np.concatenate([mine.high, obstacles.high]))
    origin = turn[:2, :2].T @ middle
    floor = float(mine.low[:, 2].min())
    found: list[tuple[float, Array, float]] = []
    xs = np.arange(mine.low[:, 0].min(), mine.high[:, 0].max() + _GRID_M, _GRID_M)
    ys = np.arange(mine.low[:, 1].min() - _GRID_M, mine.high[:, 1].max() + _GRID_M, _GRID_M)
    near = _near(everything, mine)
    for x in np.append(xs, origin[0]):
        for y in np.append(ys, origin[1]):
            site = _site_at(np.array([x, y]), floor, mine, near)
            if site is None:
                continue
            height, slack = site
            away = float(np.linalg.norm(np.array([x, y]) - origin))
            cost = away + _YAW_COST_M * abs(yaw) - _TIGHT_COST * min(slack, 0.01)
            found.append((cost, np.append(turn[:2, :2] @ np.array([x, y]), height), yaw))
    return found


def _site_at(at: Array, floor: float, mine: _Boxes, near: _Boxes) -> tuple[float, float] | None:
    """Height of the gripper site and the slack beside the fingers, for a grasp centred at `at` in the turned frame."""
    across = (mine.low[:, 0] < at[0] + _PAD_HALF_WIDTH) & (mine.high[:, 0] > at[0] - _PAD_HALF_WIDTH)
    between = across & (mine.low[:, 1] < at[1] + _FINGER_INNER) & (mine.high[:, 1] > at[1] - _FINGER_INNER)
    if not between.any():
        return None
    top = float(mine.high[between, 2].max())
    for depth in _DEPTHS_M:
        height = max(top - depth, floor + FINGERTIP_BELOW_M + _MARGIN_M)
        tip = height - FINGERTIP_BELOW_M
        if top - tip < _LEAST_BITE_M:
            return None
        held = between & (mine.high[:, 2] > tip)
        slack = _finger_slack(at, tip, near, float(mine.low[held, 1].min()), float(mine.high[held, 1].max()))
        if slack >= _MARGIN_M and not _palm_hits(at, height, near):
            return height, slack
    return None


def _finger_slack(at: Array, tip: float, near: _Boxes, held_low: float, held_high: float) -> float:
    """Free room between the open fingers and what they enclose; negative when a finger would hit something."""
    in_the_way = (
        (near.high[:, 2] > tip - _MARGIN_M)
        & (near.low[:, 0] < at[0] + _FINGER_HALF_WIDTH)
        & (near.high[:, 0] > at[0] - _FINGER_HALF_WIDTH)
    )
    low, high = near.low[in_the_way, 1] - at[1], near.high[in_the_way, 1] - at[1]
    hits = ((low < _FINGER_OUTER) & (high > _FINGER_INNER)) | ((low < -_FINGER_INNER) & (high > -_FINGER_OUTER))
    if hits.any():
        return -1.0
    return float(min(_FINGER_INNER - (held_high - at[1]), _FINGER_INNER + (held_low - at[1])))


def _palm_hits(at: Array, height: float, near: _Boxes) -> bool:
    return bool(
        np.any(
            (near.high[:, 2] > height + PALM_ABOVE_M - _MARGIN_M)
            & (near.low[:, 0] < at[0] + _PALM_HALF_WIDTH)
            & (near.high[:, 0] > at[0] - _PALM_HALF_WIDTH)
            & (near.low[:, 1] < at[1] + _PALM_HALF_LENGTH)
            & (near.high[:, 1] > at[1] - _PALM_HALF_LENGTH)
        )
    )


def lowest_free_site(world: World, at: Array, yaw: float, ignored: str) -> float:
    """Lowest height of the gripper site at `at` (2,) at which the opening hand touches nothing but `ignored`."""
    turn = yaw_rotation(yaw)
    boxes = _boxes(_other_shapes(world, ignored), turn)
    centre = turn[:2, :2].T @ at
    lowest = -np.inf
    for half_x, half_y, below in (
        (_FINGER_HALF_WIDTH, _FINGER_OUTER, FINGERTIP_BELOW_M),
        (_PALM_HALF_WIDTH, _PALM_HALF_LENGTH, -PALM_ABOVE_M),
    ):
        half = np.array([half_x, half_y])
        under = np.all(boxes.low[:, :2] < centre + half, axis=1) & np.all(boxes.high[:, :2] > centre - half, axis=1)
        if under.any():
            lowest = max(lowest, float(boxes.high[under, 2].max()) + below)
    return lowest


def _near(boxes: _Boxes, mine: _Boxes) -> _Boxes:
    reach = 0.15
    keep = np.all(boxes.low[:, :2] < mine.high[:, :2].max(axis=0) + reach, axis=1) & np.all(
        boxes.high[:, :2] > mine.low[:, :2].min(axis=0) - reach, axis=1
    )
    return _Boxes(boxes.low[keep], boxes.high[keep])


def _other_shapes(world: World, name: str) -> list[Array]:
    return [world.shapes(body) for body in world.bodies if body != name]


def _boxes(bodies: list[Array], turn: Array) -> _Boxes:
    """Boxes of all shapes of some bodies, each (shapes, points, 3), in a frame turned about the vertical."""
    turned = [shapes @ turn for shapes in bodies]
    low = [shapes.min(axis=1) for shapes in turned] + [np.empty((0, 3))]
    high = [shapes.max(axis=1) for shapes in turned] + [np.empty((0, 3))]
    return _Boxes(np.concatenate(low), np.concatenate(high))


def _wrap_half_turn(angle: float) -> float:
    """The gripper is symmetric: the same closing direction in (−π/2, π/2]."""
    return float(-((-angle + np.pi / 2) % np.pi - np.pi / 2))
