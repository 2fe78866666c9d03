"""What hangs over things: whether a place can be filled from above, and the way out from under something."""

from __future__ import annotations

import numpy as np

from harness.libero.geometry import Array, Boxes
from harness.libero.world import World

_ABOVE_M = 0.16
"""Half the height of the room that must be empty."""
_MARGIN_M = 0.008
_STEP_M, _FARTHEST_M = 0.01, 0.15
_DIRECTIONS = np.array([(np.cos(angle), np.sin(angle)) for angle in np.arange(8) * np.pi / 4])
_LIFT_M = 0.02
"""How high an object is lifted before it is taken aside."""


def open_above(world: World, thing: str, region: str) -> bool:
    """Whether nothing but what is carried is above the inner half of a region, so that it can be filled from above."""
    middle, half = world.position(region), world.half_size(region)
    column = _column(middle[:2] - half[:2] / 2, middle[:2] + half[:2] / 2, middle[2], 0.0)
    return not column.overlaps(world.boxes_besides(world.body(thing))).any()


def way_out(world: World, thing: str) -> Array:
    """The shortest straight way, metres (2,), out from under what hangs over an object; zeros where nothing does, or
    where there is no way."""
    body = world.body(thing)
    own, others = world.boxes(body), world.boxes_besides(body)
    reach = np.stack([own.extent(axis) for axis in np.eye(3)], axis=1)
    low, high = (own.centres - reach).min(axis=0), (own.centres + reach).max(axis=0)
    if not _column(low[:2], high[:2], high[2], 0.0).overlaps(others).any():
        return np.zeros(2)
    open_ways = list(_DIRECTIONS)
    for distance in np.arange(_STEP_M, _FARTHEST_M, _STEP_M):
        for direction in list(open_ways):
            way = distance * direction
            column = _column(low[:2] + way, high[:2] + way, low[2] + _LIFT_M, _MARGIN_M)
            met = others.where(column.overlaps(others)[0])
            if not len(met):
                return np.asarray(way)
            if (met.centres[:, 2] - met.extent(np.array([0.0, 0.0, 1.0])) < high[2]).any():
                open_ways = [other for other in open_ways if other is not direction]  # something stands in this way
    return np.zeros(2)


def _column(low: Array, high: Array, bottom: float, margin_m: float) -> Boxes:
    """A box over a rectangle (2,) to (2,), from a height up, and so much wider on every side."""
    half = np.append((high - low) / 2 + margin_m, _ABOVE_M)
    return Boxes(np.append((low + high) / 2, bottom + _ABOVE_M)[None], np.eye(3)[None], half[None])
