"""Where to take hold of a drawer, a door or a knob: grips across its bars and ridges, and flat faces to push on.

A hold is kept when the whole hand, as a set of boxes, is free of everything else before, at the start and at the end of
the motion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from harness.libero.geometry import Array, Boxes
from harness.libero.joint import Joint
from harness.libero.world import World

_UP = np.array([0.0, 0.0, 1.0])

# The Panda gripper of robosuite 1.4 about its gripper site, measured on its collision shapes. Metres: the low and the
# high corner of each box; x is the closing direction, z points out of the fingers.
_PALM = ((-0.104, -0.032, -0.123), (0.104, 0.032, -0.031))
_WRIST = ((-0.05, -0.05, -0.25), (0.05, 0.05, -0.123))
_TIP_BELOW_M = 0.0092
_TIP = ((0.0, -0.0105, -0.012), (0.0213, 0.0105, _TIP_BELOW_M))
_FINGER = ((0.0, -0.0105, -0.045), (0.0269, 0.0105, -0.012))
"""One finger of two, closed."""
_OPEN_M = 0.0382
"""How far each finger moves out to open."""

_WIDEST_M = 0.072
_DEPTHS_M = (0.018, 0.012, 0.008)
"""Gripper site below the face it comes in by: the deepest that is free is taken."""
_BACK_M = 0.08
_PUSH_BACK_M = 0.03
_GAP_M = 0.001
_EDGE_M = 0.02
"""Pushes stay this far from the edge of a face."""
_LEANS = np.deg2rad([0, 30, 45, 60, 75, 90])
"""Of a push: from straight down to straight at the face."""
_TILT_COST = 0.1
"""A radian away from straight down is worth this many metres of travel."""
_LEVER_COST_M2 = 0.02
_REACH_M = 0.45


@dataclass(frozen=True)
class Hold:
    """A pose of the hand that moves with a part.

    Attributes:
        position: of the gripper site, metres (3,), with the part at `joint_position`.
        rotation: of the gripper site (3, 3), likewise.
        joint_position: metres or radians.
        back: from the hold to where the hand comes from, metres (3,).
        grips: the fingers close on the part; or else the closed hand pushes it.
    """

    position: Array
    rotation: Array
    joint_position: float
    back: Array
    grips: bool

    def at(self, joint: Joint, to: float) -> tuple[Array, Array]:
        """The gripper site's position (3,) and rotation (3, 3) with the part at a joint position."""
        rotation, shift = replace(joint, position=self.joint_position).motion(to)
        return rotation @ self.position + shift, rotation @ self.rotation


def hand_boxes(opened: bool) -> Boxes:
    """The hand about its gripper site, fingers open or closed."""
    out = np.array([_OPEN_M if opened else 0.0, 0.0, 0.0])
    corners = [(np.array(low), np.array(high)) for low, high in (_PALM, _WRIST)]
    for low, high in (_TIP, _FINGER):
        corners.append((low + out, high + out))
        corners.append((np.array([-high[0], low[1], low[2]]) - out, np.array([-low[0], high[1], high[2]]) - out))
    lows, highs = np.array([low for low, _ in corners]), np.array([high for _, high in corners])
    return Boxes((lows + highs) / 2, np.tile(np.eye(3), (len(corners), 1, 1)), (highs - lows) / 2)


def plan_holds(world: World, name: str, to: float, most: int = 4) -> list[Hold]:
    """Holds on the part that a region or a fixture names, for moving it to a joint position; best first.

    Where none is free, those are taken that touch nothing but objects that can be pushed aside.
    """
    joint = world.joint(name)
    assert joint is not None
    part = world.boxes(joint.body)
    candidates = sorted([*_grips(part, joint, to), *_pushes(part, joint, to)], key=lambda candidate: candidate[0])
    for movable in (True, False):
        others = world.boxes_besides(joint.body, movable)
        far = np.linalg.norm(others.centres - part.centres.mean(axis=0), axis=1) - np.linalg.norm(others.halves, axis=1)
        others = others.where(far < _REACH_M)
        found: list[Hold] = []
        for _, hold in candidates:
            if not any(_alike(hold, other) for other in found) and _free(hold, joint, to, part, others):
                found.append(hold)
            if len(found) == most:
                break
        if found:
            return found
    return []


def _alike(first: Hold, second: Hold) -> bool:
    near = np.linalg.norm(first.position - second.position) < 0.012 and first.grips == second.grips
    turned = np.abs(np.sum(first.rotation * second.rotation, axis=0)).min()
    return bool(near and turned > 0.9)


def _free(hold: Hold, joint: Joint, to: float, part: Boxes, others: Boxes) -> bool:
    """Whether the hand touches nothing on its way in and while it moves the part."""
    hand = hand_boxes(hold.grips)
    start = hand.moved(hold.rotation, hold.position)
    if start.overlaps(part).any() or start.overlaps(others).any():
        return False
    before = hand.moved(hold.rotation, hold.position + hold.back)
    if before.overlaps(part).any() or before.overlaps(others).any():
        return False
    position, rotation = hold.at(joint, to)
    return not hand.moved(rotation, position).overlaps(others).any()


def _grips(part: Boxes, joint: Joint, to: float) -> Iterator[tuple[float, Hold]]:
    """Every way of closing across a box of the part, with its cost."""
    for centre, axes, halves in zip(part.centres, part.axes, part.halves, strict=True):
        for across in range(3):
            if 2 * halves[across] > _WIDEST_M:
                continue
            for into in {0, 1, 2} - {across}:
                along = 3 - across - into
                for sign in (-1.0, 1.0):
                    approach, closing = sign * axes[:, into], axes[:, across]
                    rotation = np.stack([closing, np.cross(approach, closing), approach], axis=1)
                    for depth in _DEPTHS_M:
                        if depth > 2 * halves[into]:
                            continue
                        for offset in _places(centre, axes[:, along], halves[along], joint):
                            site = centre + (depth - halves[into]) * approach + offset
                            hold = Hold(site, rotation, joint.position, -_BACK_M * approach, True)
                            yield _tilt_cost(approach) + _travel(hold, joint, to) - 0.2 * depth, hold


def _places(centre: Array, along: Array, half: float, joint: Joint) -> list[Array]:
    """Offsets (3,) from a box's centre along one of its edges: none, and as near to a hinge's axis as it reaches."""
    inside = max(half - 0.01, 0.0)
    near = 0.0 if joint.slides else float(np.clip((joint.anchor - centre) @ along, -inside, inside))
    return [np.zeros(3), near * along] if abs(near) > 0.005 else [np.zeros(3)]


def _pushes(part: Boxes, joint: Joint, to: float) -> Iterator[tuple[float, Hold]]:
    """Every way of pushing on an upright face of the part, with its cost."""
    ahead = np.sign(to - joint.position)
    for centre, axes, halves in zip(part.centres, part.axes, part.halves, strict=True):
        for facing in range(3):
            for sign in (-1.0, 1.0):
                normal = sign * axes[:, facing]
                if abs(normal[2]) > 0.1:
                    continue
                sideways = np.cross(_UP, normal)
                reach = float((np.abs(sideways @ axes) * halves)[[i for i in range(3) if i != facing]].sum())
                height = float((np.abs(_UP @ axes) * halves)[[i for i in range(3) if i != facing]].sum())
                for side in {0.0, max(reach - _EDGE_M, 0.0), -max(reach - _EDGE_M, 0.0)}:
                    for rise in {0.0, max(height - _EDGE_M, 0.0)}:
                        point = centre + halves[facing] * normal + side * sideways + rise * _UP
                        velocity = ahead * joint.velocity(point)
                        lever = float(np.linalg.norm(velocity))
                        if velocity @ normal > -0.9 * lever:
                            continue
                        for lean in _LEANS:
                            hold = _push(point, normal, float(lean), joint)
                            cost = 0.0 if joint.slides else _LEVER_COST_M2 / lever
                            yield cost + _TILT_COST * lean + 0.1 * float(side != 0 and joint.slides), hold


def _push(point: Array, normal: Array, lean: float, joint: Joint) -> Hold:
    approach = -np.sin(lean) * normal - np.cos(lean) * _UP
    closing = np.cross(_UP, normal)
    rotation = np.stack([closing, np.cross(approach, closing), approach], axis=1)
    tips = hand_boxes(opened=False).moved(rotation, np.zeros(3))
    away = float((tips.extent(normal) - tips.centres @ normal)[2:].max())
    return Hold(point + (away + _GAP_M) * normal, rotation, joint.position, _PUSH_BACK_M * normal, False)


def _tilt_cost(approach: Array) -> float:
    return _TILT_COST * float(np.arccos(np.clip(-approach[2], -1.0, 1.0)))


def _travel(hold: Hold, joint: Joint, to: float) -> float:
    """How far the hand goes, metres."""
    return abs(to - joint.position) * float(np.linalg.norm(joint.velocity(hold.position)))
