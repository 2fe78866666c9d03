"""The skill for In behind a lid: carries an object into an open drawer from above, or past an open door from the front.

The grip, the place and the way in are chosen together, so that the whole hand stays clear of the fixture.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import product

import numpy as np

from harness.libero.expert.grasps import plan_grasps
from harness.libero.expert.handles import hand_boxes
from harness.libero.expert.motion import CLEARANCE_M, CLOSE, DOWN, HandTarget
from harness.libero.expert.overhead import way_out
from harness.libero.expert.planner import Conjunct
from harness.libero.expert.taking import Phase, Taking
from harness.libero.geometry import Array, Boxes, boxes_of, yaw_rotation
from harness.libero.world import World

_UP = np.array([0.0, 0.0, 1.0])
_WIDEST_M = 0.06
_DEPTHS_M = (0.02, 0.014)
_BACK_M = 0.08
_LEANS = np.deg2rad([0, 20, 40, 60])
"""Of the hand towards the fixture, from straight down."""
_LEAN_COST_M = 0.02
"""A radian of lean is worth this much distance of the place from the region's middle."""
_RANK_COST_M = 0.01
"""Each grasp of pick and place that is better costs this much."""
_ANY_BOX_COST_M = 0.25
_SPOTS = np.array(list(product((0.0, -0.25, 0.25, -0.5, 0.5), (0.0, -0.2, 0.2, -0.35, 0.35, -0.5, 0.5, -0.75, 0.75))))
"""Places within a region, in shares of its half extents."""
_LEVEL = 0.3
"""Most of a closing direction that may be vertical."""
_OUTSIDE_M = 0.16
_ABOVE_FLOOR_M = 0.016
"""What is held by its rim or handle hangs down at its far end."""
_GONE_M = 0.03
_ASIDE_M = 0.015
_LOST_STEPS = 3
"""A touch that is lost for a step comes back."""
_ALIGNED_M, _BEFORE_M = 0.008, 0.015


@dataclass(frozen=True)
class Way:
    """How an object gets into a region.

    Attributes:
        offset: gripper site minus the object's origin, in the object's frame, metres (3,).
        rotation: of the gripper site in the object's frame (3, 3).
        place: the object's origin at its place, relative to the region's middle, world axes, metres (3,).
        out: from the place to before the opening, world frame, metres (3,).
    """

    offset: Array
    rotation: Array
    place: Array
    out: Array


class Stage(Enum):
    LIFT = "lifting"
    ASIDE = "out from under what hangs above"
    CARRY = "over to the opening"
    INSERT = "into the opening"


def uncovered_reason(world: World, conjunct: Conjunct) -> str | None:
    """Why an object cannot be carried at all; None when it can."""
    return None if conjunct[1] in world.movable else f"no skill to carry {conjunct[1]}"


class Insert(Taking):
    """A skill: carries the object of an In conjunct into its region, whose lid is open, until the conjunct holds.

    Args:
        conjunct: `("in", object, region)`.
    """

    def __init__(self, world: World, conjunct: Conjunct) -> None:
        self._conjunct = conjunct
        self._thing, self._region = conjunct[1:]
        self._ways = plan_ways(world, self._thing, self._region)
        self._stage = Stage.LIFT
        self._carried = np.zeros(3)
        self._touches = deque([True], maxlen=_LOST_STEPS)
        super().__init__(world)

    def _has_hold(self) -> bool:
        return bool(self._ways)

    def _pose(self) -> tuple[Array, Array]:
        way, rotation = self._ways[0], self._world.rotation(self._thing)
        return self._world.position(self._thing) + rotation @ way.offset, rotation @ way.rotation

    def _back(self) -> Array:
        return -_BACK_M * self._pose()[1][:, 2]

    def _grips(self) -> bool:
        return True

    def _obstacles(self) -> Boxes:
        body = self._world.body(self._thing)
        besides = self._world.boxes_besides(body)
        return besides if self._phase is Phase.WORK else boxes_of([besides, self._world.boxes(body)])

    def _work(self) -> HandTarget | None:
        hand, position = self._world.hand()[0], self._world.position(self._thing)
        if self._stage is Stage.LIFT and hand[2] - self._anchor[2] < _GONE_M:
            self._carried = position - hand
        self._touches.append(self._world.gripped(self._thing))
        slipped = np.linalg.norm(position - hand - self._carried) > _GONE_M or not any(self._touches)
        if slipped or self._stalled():
            self._stage = Stage.LIFT
            self._touches.append(True)
            return None
        place = self._world.position(self._region) + self._ways[0].place
        before = place + self._ways[0].out
        if self._stage is Stage.LIFT and hand[2] - self._anchor[2] > CLEARANCE_M:
            self._stage = Stage.ASIDE
            self._anchor = hand + np.append(way_out(self._world, self._thing), 0.0)
        if self._stage is Stage.ASIDE and np.linalg.norm(hand - self._anchor) < _ASIDE_M:
            self._stage = Stage.CARRY
        if self._stage is Stage.CARRY and np.linalg.norm(position - before) < _BEFORE_M:
            self._stage = Stage.INSERT
        if self._stage is Stage.INSERT:
            if np.linalg.norm(position - place) < _ALIGNED_M and self._world.holds(self._conjunct):
                self._stage = Stage.LIFT
                return None
            return HandTarget(hand + place - position, 0.0, CLOSE, speed=0.6, rotation=self._turned)
        if self._stage is Stage.ASIDE:
            return HandTarget(self._anchor, 0.0, CLOSE, speed=0.6, rotation=self._turned)
        if self._stage is Stage.LIFT:
            return HandTarget(hand + 2 * CLEARANCE_M * _UP, 0.0, CLOSE, rotation=self._turned)
        hang = float(hand[2]) - _lowest(self._world.boxes(self._world.body(self._thing)))
        return HandTarget(
            self._over(hand, hand + before - position, self._turned, hang), 0.0, CLOSE, rotation=self._turned
        )

    def _work_in_words(self) -> str:
        return self._stage.value

    def _progress(self) -> float:
        return 0.0

    def _done(self) -> bool:
        return self._world.holds(self._conjunct)

    def _try_next(self) -> None:
        failed = self._ways[0]

        def like_failed(way: Way) -> bool:
            return bool(np.linalg.norm(way.offset - failed.offset) < 0.02)

        self._ways = sorted(plan_ways(self._world, self._thing, self._region), key=like_failed)


def plan_ways(world: World, thing: str, region: str, most: int = 4) -> list[Way]:
    """Ways into a region whose lid is open, best first. Empty when there is none."""
    body = world.body(thing)
    own, others = world.boxes(body), world.boxes_besides(body)
    position, rotation = world.position(thing), world.rotation(thing)
    out = _outward(world, region)
    middle, half = world.position(region), world.half_size(region)
    floor = _floor(others, middle)
    if floor is None:
        return []
    near = others.where(np.linalg.norm(others.centres - middle, axis=1) - np.linalg.norm(others.halves, axis=1) < 0.5)
    spots = []
    for share in _SPOTS:
        spot = np.append(middle[:2] + share * half[:2], floor + _ABOVE_FLOOR_M + position[2] - _lowest(own))
        if not own.moved(np.eye(3), spot - position).overlaps(near).any():
            spots.append(spot)
    found: list[tuple[float, Way]] = []
    hand = hand_boxes(opened=True)
    for site, turned, price in _grips(world, thing, own, _facing(world, region)):
        start = hand.moved(turned, site)
        before = hand.moved(turned, site - _BACK_M * turned[:, 2])
        if start.overlaps(own).any() or start.overlaps(others).any() or before.overlaps(others).any():
            continue
        lean = float(np.arccos(np.clip(-turned[2, 2], -1.0, 1.0)))
        for spot in spots:
            placed = start.moved(np.eye(3), spot - position)
            if any(placed.moved(np.eye(3), share * out).overlaps(near).any() for share in (0.0, 0.25, 0.5, 1.0)):
                continue
            cost = price + float(np.linalg.norm((spot - middle)[:2])) + _LEAN_COST_M * lean
            way = Way(rotation.T @ (site - position), rotation.T @ turned, spot - middle, out)
            found.append((cost, way))
            break
    found.sort(key=lambda item: item[0])
    return [way for _, way in found[:most]]


def _grips(world: World, thing: str, own: Boxes, facing: Array) -> Iterator[tuple[Array, Array, float]]:
    """Grips of an object, upright or leant towards the fixture or sideways: site (3,) and rotation (3, 3) of the hand,
    cost.

    Those that pick and place knows, and at a price those across every box of the object.
    """
    sideways = np.cross(_UP, facing)
    for rank, grasp in enumerate(plan_grasps(world, thing, most=16, clear_of_palm=False)):
        site, yaw = grasp.at(world, thing)
        for side in (facing, sideways, -sideways):
            for lean in _LEANS[0 if side is facing else 1 :]:
                yield site, _leant(yaw_rotation(yaw) @ DOWN[:, 0], side, lean), _RANK_COST_M * rank
    for index in range(len(own)):
        centre, axes, halves = own.centres[index], own.axes[index], own.halves[index]
        box = own.where(np.arange(len(own)) == index)
        for across in range(3):
            if abs(axes[2, across]) > _LEVEL or 2 * halves[across] > _WIDEST_M:
                continue
            for lean in _LEANS:
                turned = _leant(axes[:, across], facing, lean)
                for depth in _DEPTHS_M:
                    yield centre + (depth - float(box.extent(turned[:, 2])[0])) * turned[:, 2], turned, _ANY_BOX_COST_M


def _leant(closing: Array, facing: Array, lean: float) -> Array:
    """The hand's rotation (3, 3) that closes along `closing` and leans towards `facing`, radians from straight down."""
    approach = np.sin(lean) * facing - np.cos(lean) * _UP
    approach = approach - (approach @ closing) * closing
    approach = approach / np.linalg.norm(approach)
    return np.stack([closing, np.cross(approach, closing), approach], axis=1)


def _lowest(boxes: Boxes) -> float:
    return float((boxes.centres[:, 2] - boxes.extent(_UP)).min())


def _floor(others: Boxes, middle: Array) -> float | None:
    """Height of what is below the middle of a region."""
    sides = np.stack([others.extent(axis) for axis in np.eye(3)[:2]], axis=1)
    under = np.all(np.abs(others.centres[:, :2] - middle[:2]) < sides + 0.01, axis=1)
    tops = (others.centres[:, 2] + others.extent(_UP))[under]
    below = tops[tops < middle[2] - 0.005]
    return float(below.max()) if len(below) else None


def _facing(world: World, region: str) -> Array:
    """Horizontal unit vector (3,) from before the fixture into it."""
    lid = world.lid(region)
    assert lid is not None
    joint, limits = world.joint(lid), world.wanted_range(("close", lid))
    assert joint is not None
    assert limits is not None
    if joint.slides:
        inward = joint.axis * np.sign(float(np.mean(limits)) - joint.position)
    else:
        rotation, shift = joint.motion(float(np.mean(limits)))
        door = world.boxes(joint.body).moved(rotation, shift).centres.mean(axis=0)
        away = (door - world.position(region))[:2]
        axis = int(np.argmax(np.abs(away)))
        inward = -np.sign(away[axis]) * np.eye(3)[axis]
    return np.asarray(inward)


def _outward(world: World, region: str) -> Array:
    """From a place in a region to before its opening, metres (3,): up from a drawer, forward from behind a door."""
    lid = world.lid(region)
    joint = None if lid is None else world.joint(lid)
    assert joint is not None
    return _OUTSIDE_M * (_UP if joint.slides else -_facing(world, region))
