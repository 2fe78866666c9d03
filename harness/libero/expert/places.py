"""Where on or in a region an object is put."""

from __future__ import annotations

import numpy as np

from harness.libero.expert.motion import CLEARANCE_M
from harness.libero.expert.planner import Conjunct
from harness.libero.geometry import Array
from harness.libero.world import World

_SHARED = 0.7
"""Share of a region's half size within which things are put that share it."""
_INSIDE = 0.45
"""Likewise of those that are put into it."""


def free_spot(world: World, conjunct: Conjunct) -> Array:
    """Offset (2,) from a region's middle, metres, away from objects that already lie there; zero in one that is this
    object's alone. What stands on a region beside others is put where their outlines stay apart.

    Args:
        conjunct: `("on" | "in", object, region)`.
    """
    predicate, thing, region = conjunct
    centre, half = world.position(region)[:2], world.half_size(region)[:2]
    lying = [
        name
        for name in world.movable
        if name not in (thing, world.parent(region)) and np.all(np.abs(world.position(name)[:2] - centre) < half)
    ]
    if predicate == "on":
        return _beside(world, thing, region, lying)
    if not lying:
        return np.zeros(2)
    spots = _INSIDE * half * np.array([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)])
    there = [world.position(name)[:2] - centre for name in lying]
    room = [min(float(np.linalg.norm(spot - offset)) for offset in there) for spot in spots]
    return np.asarray(spots[int(np.argmax(room))])


def _beside(world: World, thing: str, region: str, lying: list[str]) -> Array:
    centre, half = world.position(region)[:2], world.half_size(region)[:2]
    own = _outline(world, thing) - world.position(thing)[:2]
    if not lying:
        alone = sum(conjunct[2:] == (region,) for conjunct in world.goal) <= 1
        narrow = np.argmin(own[1] - own[0])
        return np.zeros(2) if alone else np.where(np.arange(2) == narrow, _SHARED * half, 0.0)
    spots = _SHARED * half * np.array([(x, y) for x in np.linspace(-1, 1, 9) for y in np.linspace(-1, 1, 9)])
    gaps = [_gap(own + centre + spot, [_outline(world, name) for name in lying]) for spot in spots]
    worth = np.minimum(gaps, CLEARANCE_M) - 0.1 * np.linalg.norm(spots, axis=1)
    return np.asarray(spots[int(np.argmax(worth))])


def _outline(world: World, name: str) -> Array:
    """Lowest and highest x and y that an object covers: (2, 2)."""
    shapes = world.shapes(name)[:, :, :2]
    return np.array([shapes.min(axis=(0, 1)), shapes.max(axis=(0, 1))])


def _gap(outline: Array, others: list[Array]) -> float:
    """Room between an outline (2, 2) and the nearest of others; negative where they overlap."""
    return min(float(np.max([outline[0] - other[1], other[0] - outline[1]])) for other in others)
