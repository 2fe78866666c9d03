"""Where to grip: a search over top-down grasps that neither finger nor palm collides with anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

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
_DEPTHS_M = (0.026, 0.018, 0.010, -0.002)
"""Gripper site below the top of what is gripped: the deepest that is free is taken. The last bites with the tips of the
pads only, as at the rim of a plate, whose own bottom is in the way."""
_LEAST_BITE_M = 0.006
_REACH_M = 0.15
_MARGIN_M = 0.002
_YAW_COST_M = 0.012
"""A radian of yaw is worth this much distance from the object's middle: straight grasps are easier to imitate."""
_TIGHT_COST = 0.5
_SKEW_COST = 1.5
_MOST_SKEW_M = 0.01
_SHALLOW_COST = 1.5


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


def plan_grasps(world: World, name: str, most: int = 6, clear_of_palm: bool = True) -> list[Grasp]:
    """Free grasps of an object, best first, each clearly different from the ones before. Empty when there is none.

    Args:
        clear_of_palm: whether the palm must be free too, and not only the fingers.
    """
    own, others = [_edges(shape) for shape in world.shapes(name)], [_edges(shape) for shape in _near(world, name)]
    found: list[tuple[float, Array, float]] = []
    for yaw in _YAWS:
        found += _search(own, others, float(yaw), world.position(name)[:2], clear_of_palm)
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


def _search(
    own: list[Array], others: list[Array], yaw: float, middle: Array, clear_of_palm: bool
) -> list[tuple[float, Array, float]]:
    """Free grasps at one yaw: (cost, gripper site in the world, yaw)."""
    turn = yaw_rotation(yaw)
    mine, obstacles = _sliced(own, turn), _sliced(others, turn)
    everything = _Boxes(np.concatenate([mine.low, obstacles.low]), np.concatenate([mine.high, obstacles.high]))
    origin = turn[:2, :2].T @ middle
    xs = np.arange(mine.low[:, 0].min(), mine.high[:, 0].max() + _GRID_M, _GRID_M)
    ys = np.arange(mine.low[:, 1].min() - _GRID_M, mine.high[:, 1].max() + _GRID_M, _GRID_M)
    grid = np.meshgrid(np.append(xs, origin[0]), np.append(ys, origin[1]), indexing="ij")
    sites = np.stack(grid, axis=-1).reshape(-1, 2)
    heights, slacks, depths = _heights(sites, mine, everything, clear_of_palm)
    free = np.isfinite(heights)
    sites, heights, slacks, depths = sites[free], heights[free], slacks[free], depths[free]
    skews = _skews(sites, heights - FINGERTIP_BELOW_M, mine)
    square = skews < _MOST_SKEW_M
    sites, heights, slacks, skews = sites[square], heights[square], slacks[square], skews[square]
    shallow = np.maximum(_DEPTHS_M[0] - depths[square], 0.0)
    away = np.linalg.norm(sites - origin, axis=1)
    costs = away + _YAW_COST_M * abs(yaw) - _TIGHT_COST * np.minimum(slacks, 0.01) + _SKEW_COST * skews
    costs += _SHALLOW_COST * shallow
    places = np.column_stack([sites @ turn[:2, :2].T, heights])
    return [(float(cost), place, yaw) for cost, place in zip(costs, places, strict=True)]


def _heights(sites: Array, mine: _Boxes, near: _Boxes, clear_of_palm: bool) -> tuple[Array, Array, Array]:
    """For grasps centred at `sites` (n, 2), in the turned frame: the height of the gripper site, infinite where none is
    free, the slack beside the fingers, and how deep the site is below the top of what is gripped."""
    heights, slacks = np.full(len(sites), np.inf), np.zeros(len(sites))
    floor = float(mine.low[:, 2].min())
    between = _within(sites, mine, _PAD_HALF_WIDTH, _FINGER_INNER)
    tops = np.where(between, mine.high[:, 2], -np.inf).max(axis=1)
    open_ = np.isfinite(tops)
    for depth in _DEPTHS_M:
        height = np.maximum(tops - depth, floor + FINGERTIP_BELOW_M + _MARGIN_M)
        tip = height - FINGERTIP_BELOW_M
        open_ &= tops - tip >= _LEAST_BITE_M
        chosen = np.flatnonzero(open_)
        slack = _finger_slack(sites[chosen], tip[chosen], near, mine, between[chosen])
        fits = slack >= _MARGIN_M
        if clear_of_palm:
            fits &= ~_palm_hits(sites[chosen], height[chosen], near)
        taken = chosen[fits]
        heights[taken], slacks[taken] = height[taken], slack[fits]
        open_[taken] = False
    return heights, slacks, tops - heights


def _within(sites: Array, boxes: _Boxes, half_x: float, half_y: float) -> NDArray[np.bool_]:
    """Which boxes reach into the rectangle about each site: (sites, boxes)."""
    x, y = sites[:, 0, None], sites[:, 1, None]
    along = (boxes.low[:, 0] < x + half_x) & (boxes.high[:, 0] > x - half_x)
    return np.asarray(along & (boxes.low[:, 1] < y + half_y) & (boxes.high[:, 1] > y - half_y))


def _finger_slack(sites: Array, tips: Array, near: _Boxes, mine: _Boxes, between: NDArray[np.bool_]) -> Array:
    """Free room between the open fingers and what they enclose; negative when a finger would hit something."""
    middles = sites[:, 1]
    lowest, highest = _held(between, tips, mine)
    slack = np.minimum(_FINGER_INNER - (highest - middles), _FINGER_INNER + (lowest - middles))
    deep = near.high[:, 2] > tips[:, None] - _MARGIN_M
    beside = (_FINGER_OUTER - _FINGER_INNER) / 2
    hits = np.zeros(len(sites), dtype=bool)
    for side in (1.0, -1.0):
        finger = sites + np.array([0.0, side * (_FINGER_INNER + beside)])
        hits |= (deep & _within(finger, near, _FINGER_HALF_WIDTH, beside)).any(axis=1)
    return np.where(hits, -1.0, slack)


def _held(between: NDArray[np.bool_], tips: Array, mine: _Boxes) -> tuple[Array, Array]:
    """Lowest and highest second coordinate of the parts between the fingers that reach above their tips."""
    held = between & (mine.high[:, 2] > tips[:, None])
    lowest = np.where(held, mine.low[:, 1], np.inf).min(axis=1)
    return lowest, np.where(held, mine.high[:, 1], -np.inf).max(axis=1)


def _skews(sites: Array, tips: Array, mine: _Boxes) -> Array:
    """How much wider the pads find the object than their middle thirds do, metres: nothing where they meet it squarely.
    A face that slants away turns the object in the hand."""
    lowest, highest = _held(_within(sites, mine, _PAD_HALF_WIDTH, _FINGER_INNER), tips, mine)
    inner_lowest, inner_highest = _held(_within(sites, mine, _PAD_HALF_WIDTH / 3, _FINGER_INNER), tips, mine)
    return np.minimum(inner_lowest - lowest + highest - inner_highest, 2 * _PAD_HALF_WIDTH)


def _palm_hits(sites: Array, heights: Array, near: _Boxes) -> NDArray[np.bool_]:
    high = near.high[:, 2] > heights[:, None] + PALM_ABOVE_M - _MARGIN_M
    return np.asarray((high & _within(sites, near, _PALM_HALF_WIDTH, _PALM_HALF_LENGTH)).any(axis=1))


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


def _near(world: World, name: str) -> list[Array]:
    """Shapes of other things that a hand at the object could hit, (points, 3) each."""
    own = world.shapes(name)
    low, high = own.min(axis=(0, 1)) - _REACH_M, own.max(axis=(0, 1)) + _REACH_M
    shapes = [shape for shapes in _other_shapes(world, name) for shape in shapes]
    return [shape for shape in shapes if np.all(shape.min(axis=0)[:2] < high[:2]) and np.all(shape.max(axis=0) > low)]


def _other_shapes(world: World, name: str) -> list[Array]:
    return [world.shapes(body) for body in world.bodies if body != name]


def _boxes(bodies: list[Array], turn: Array) -> _Boxes:
    """Boxes of all shapes of some bodies, each (shapes, points, 3), in a frame turned about the vertical."""
    turned = [shapes @ turn for shapes in bodies]
    low = [shapes.min(axis=1) for shapes in turned] + [np.empty((0, 3))]
    high = [shapes.max(axis=1) for shapes in turned] + [np.empty((0, 3))]
    return _Boxes(np.concatenate(low), np.concatenate(high))


def _edges(shape: Array) -> Array:
    """The edges of a convex shape given by its points (n, 3), among them some across its flat faces: (edges, 2, 3)."""
    corners = np.unique(shape, axis=0)
    triangles = ConvexHull(corners, qhull_options="QJ").simplices
    pairs = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]])
    return np.asarray(corners[np.unique(np.sort(pairs, axis=1), axis=0)])


def _sliced(shapes: list[Array], turn: Array) -> _Boxes:
    """Boxes of slices of convex shapes, each given by its edges, cut across the first axis of a turned frame.

    The box of a whole slanting shape, such as a piece of a rim, takes up room that the fingers need.
    """
    lows, highs = [np.empty((0, 3))], [np.empty((0, 3))]
    for edges in shapes:
        start, end = edges[:, 0] @ turn, edges[:, 1] @ turn
        first, last = min(start[:, 0].min(), end[:, 0].min()), max(start[:, 0].max(), end[:, 0].max())
        cuts = np.linspace(first, last, 1 + max(1, round((last - first) / _GRID_M)))
        along = end[:, 0] - start[:, 0]
        inverse = 1.0 / np.where(np.abs(along) < 1e-9, 1e-9, along)
        enter, leave = (cuts[:-1, None] - start[:, 0]) * inverse, (cuts[1:, None] - start[:, 0]) * inverse
        enter, leave = np.minimum(enter, leave), np.maximum(enter, leave)
        met = ((leave >= 0.0) & (enter <= 1.0))[..., None]
        ends = [start + np.clip(t, 0.0, 1.0)[..., None] * (end - start) for t in (enter, leave)]
        lows.append(np.where(met, np.minimum(*ends), np.inf).min(axis=1))
        highs.append(np.where(met, np.maximum(*ends), -np.inf).max(axis=1))
    return _Boxes(np.concatenate(lows), np.concatenate(highs))


def _wrap_half_turn(angle: float) -> float:
    """The gripper is symmetric: the same closing direction in (−π/2, π/2]."""
    return float(-((-angle + np.pi / 2) % np.pi - np.pi / 2))
