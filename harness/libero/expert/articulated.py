"""The skill for Open, Close, TurnOn and TurnOff: take hold of a drawer, a door or a knob, and move it along its joint.

Every phase ends on a state of the scene. A hold that cannot be reached, slips or moves nothing gives way to the next.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

import numpy as np

from harness.libero.expert.handles import Hold, hand_boxes, plan_holds
from harness.libero.expert.motion import CLOSE, OPEN, HandTarget, turn_towards
from harness.libero.expert.planner import Conjunct
from harness.libero.geometry import Array
from harness.libero.joint import Joint
from harness.libero.world import World

PREDICATES = ("open", "close", "turnon", "turnoff")

_MARGIN_M, _MARGIN_RAD = 0.008, 0.1
"""How far beyond the nearest joint position that will do."""
_LEAD_M, _LEAD_RAD = 0.04, 0.4
"""How far ahead of the part the hand is sent."""
_CLEARANCE_M = 0.02
_CORRIDOR_M = 0.08
_NEAR_M = 0.03
_THERE_M, _REACHED_M = 0.012, 0.004
_TURNED_RAD = 0.12
_UPRIGHT_RAD = 0.3
_LOST_M = 0.04
_STALL_STEPS = 12
_STALLED_M = 0.002
_STALLED_RAD = 0.02
_STEADY_OPENING_M = 0.0006
_LOOSE_M = 0.06
_EMPTY_M = 0.004
"""Fingers closer than this hold nothing."""


class Phase(Enum):
    REACH = "over to the handle"
    ENTER = "onto the handle"
    GRIP = "closing"
    MOVE = "moving the part"
    RELEASE = "letting go"
    LEAVE = "away from the handle"
    RETURN = "upright again"


def uncovered_reason(world: World, conjunct: Conjunct) -> str | None:
    """Why there is no way to move a conjunct's part, as the scene stands; None when there is one."""
    if world.joint(conjunct[1]) is None or world.wanted_range(conjunct) is None:
        return f"no skill to {' '.join(conjunct)}"
    return None


class MovePart:
    """A skill: moves the part that a conjunct names until the conjunct holds.

    Args:
        conjunct: `("open" | "close" | "turnon" | "turnoff", region or fixture)`.
    """

    def __init__(self, world: World, conjunct: Conjunct) -> None:
        self._world = world
        self._conjunct = conjunct
        self._to = _wanted_position(world, conjunct)
        self._home = world.hand()[0]
        self._holds = plan_holds(world, conjunct[1], self._to)
        self._places: deque[Array] = deque(maxlen=_STALL_STEPS + 1)
        self._enter(Phase.REACH)

    @property
    def phase(self) -> str:
        """What it is doing, in words."""
        return self._phase.value if self._holds else "no free hold"

    def act(self, hand: Array) -> HandTarget | None:
        """Where the hand should go next, from where it is (3,); None once the conjunct holds and the hand is clear."""
        if not self._holds:
            return HandTarget(hand, 0.0, OPEN)
        steps = {
            Phase.REACH: self._reach,
            Phase.ENTER: self._go_in,
            Phase.GRIP: self._grip,
            Phase.MOVE: self._move,
            Phase.RELEASE: self._release,
            Phase.LEAVE: self._leave,
        }
        joint = self._world.joint(self._conjunct[1])
        assert joint is not None
        self._places.append(np.append(hand, [joint.position, self._world.opening(), self._off(joint)[1]]))
        return self._return(hand) if self._phase is Phase.RETURN else steps[self._phase](hand, joint)

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._places.clear()
        self._anchor = self._world.hand()[0]
        self._ceiling = np.inf

    @property
    def _hold(self) -> Hold:
        return self._holds[0]

    def _off(self, joint: Joint) -> tuple[float, float]:
        """How far the hand is from its hold: metres and radians."""
        hand, rotation = self._world.hand()
        wanted, turned = self._hold.at(joint, joint.position)
        return float(np.linalg.norm(hand - wanted)), float(np.linalg.norm(turn_towards(turned, rotation)))

    # --- phases ------------------------------------------------------------------------------------------

    def _reach(self, hand: Array, joint: Joint) -> HandTarget | None:
        goal, rotation = self._hold.at(joint, joint.position)
        goal = goal + self._hold.back
        if np.linalg.norm(hand - goal) < _THERE_M and self._off(joint)[1] < _TURNED_RAD:
            self._enter(Phase.ENTER)
            return self._go_in(hand, joint)
        target = HandTarget(self._over(hand, goal, rotation), 0.0, self._gripper(), rotation=rotation)
        if self._stalled() and hand[2] < target.position[2] - _NEAR_M:
            self._ceiling = float(hand[2])  # the arm reaches no higher here: over it goes, as high as it can
        elif self._stalled():
            return self._give_up(hand, joint)
        return target

    def _go_in(self, hand: Array, joint: Joint) -> HandTarget | None:
        goal, rotation = self._hold.at(joint, joint.position)
        distance = float(np.linalg.norm(hand - goal))
        if distance < _REACHED_M or (self._stalled() and distance < _THERE_M):
            self._enter(Phase.GRIP if self._hold.grips else Phase.MOVE)
            return self._grip(hand, joint) if self._hold.grips else self._move(hand, joint)
        if self._stalled():
            return self._give_up(hand, joint)
        return HandTarget(goal, 0.0, self._gripper(), speed=0.6, rotation=rotation)

    def _grip(self, hand: Array, joint: Joint) -> HandTarget | None:
        goal, rotation = self._hold.at(joint, joint.position)
        openings = [place[4] for place in self._places][-3:]
        if len(self._places) > 4 and max(openings) - min(openings) < _STEADY_OPENING_M:
            if openings[-1] < _EMPTY_M:
                return self._give_up(hand, joint)
            self._enter(Phase.MOVE)
            return self._move(hand, joint)
        return HandTarget(goal, 0.0, CLOSE, rotation=rotation)

    def _move(self, hand: Array, joint: Joint) -> HandTarget | None:
        left = self._to - joint.position
        done = self._world.holds(self._conjunct) and (abs(left) < 0.002 or self._stalled())
        if done or np.sign(left) != np.sign(self._to - self._hold.joint_position):
            self._enter(Phase.RELEASE)
            return self._release(hand, joint)
        if self._off(joint)[0] > _LOST_M or self._stalled():
            return self._give_up(hand, joint)
        lead = _LEAD_M if joint.slides else _LEAD_RAD
        position, rotation = self._hold.at(joint, joint.position + np.sign(left) * lead)
        return HandTarget(position, 0.0, CLOSE, rotation=rotation)

    def _release(self, hand: Array, joint: Joint) -> HandTarget | None:
        if not self._hold.grips or self._world.opening() > _LOOSE_M:
            self._enter(Phase.LEAVE)
            return self._leave(hand, joint)
        return HandTarget(self._anchor, 0.0, OPEN, rotation=self._world.hand()[1])

    def _leave(self, hand: Array, joint: Joint) -> HandTarget | None:
        _, rotation = self._hold.at(joint, joint.position)
        goal = self._anchor + self._hold.at(joint, joint.position)[1] @ self._hold.rotation.T @ self._hold.back
        if np.linalg.norm(hand - goal) < _THERE_M or self._stalled():
            self._enter(Phase.RETURN)
            return self._return(hand)
        return HandTarget(goal, 0.0, self._gripper(), rotation=rotation)

    def _return(self, hand: Array) -> HandTarget | None:
        """Turns the hand down again on the way to where it came from: turned far out, the arm locks its elbow."""
        tilt = float(np.arccos(np.clip(-self._world.hand()[1][2, 2], -1.0, 1.0)))
        if tilt < _UPRIGHT_RAD or self._stalled():
            if self._world.holds(self._conjunct):
                return None
            self._holds = self._replanned()
            self._enter(Phase.REACH)
            return HandTarget(hand, 0.0, OPEN, rotation=self._world.hand()[1])
        return HandTarget(self._home, 0.0, OPEN)

    def _give_up(self, hand: Array, joint: Joint) -> HandTarget | None:
        """Another hold next."""
        self._enter(Phase.RELEASE)
        return self._release(hand, joint)

    def _replanned(self) -> list[Hold]:
        """Holds as the scene is now, those like the failed one last."""
        planned = plan_holds(self._world, self._conjunct[1], self._to)
        failed = self._hold

        def like_failed(hold: Hold) -> bool:
            return hold.grips == failed.grips and float(np.abs(hold.rotation - failed.rotation).max()) < 0.3

        return sorted(planned, key=like_failed)

    # --- facts -------------------------------------------------------------------------------------------

    def _gripper(self) -> float:
        return OPEN if self._hold.grips else CLOSE

    def _stalled(self) -> bool:
        """Whether neither hand nor part has moved for a while."""
        if len(self._places) < _STALL_STEPS + 1:
            return False
        first, last = self._places[0], self._places[-1]
        still = np.linalg.norm(last[:3] - first[:3]) < _STALLED_M and abs(last[3] - first[3]) < _STALLED_M
        return bool(still and abs(last[5] - first[5]) < _STALLED_RAD)

    def _over(self, hand: Array, goal: Array, rotation: Array) -> Array:
        """The next point on a way to `goal` (3,) that passes above everything between."""
        joint = self._world.joint(self._conjunct[1])
        assert joint is not None
        now = self._world.hand()[1]
        hang = max(_hang(now), _hang(rotation))
        low = np.minimum(hand[:2], goal[:2]) - _CORRIDOR_M
        high = np.maximum(hand[:2], goal[:2]) + _CORRIDOR_M
        clear = -np.inf
        for boxes in (self._world.boxes_but(joint), self._world.part_boxes(joint)):
            reach = np.stack([boxes.extent(axis) for axis in np.eye(3)], axis=1)
            under = np.all(boxes.centres[:, :2] - reach[:, :2] < high, axis=1)
            under &= np.all(boxes.centres[:, :2] + reach[:, :2] > low, axis=1)
            clear = max(clear, float((boxes.centres + reach)[under, 2].max(initial=-np.inf)))
        needed = min(max(clear + hang + _CLEARANCE_M, goal[2]), self._ceiling)
        turned = float(np.linalg.norm(turn_towards(rotation, now))) < 2 * _TURNED_RAD
        if float(np.linalg.norm(hand[:2] - goal[:2])) < _NEAR_M and turned:
            return goal
        share = float(np.clip((hand[2] - (needed - _CLEARANCE_M)) / 0.015, 0.0, 1.0))
        # Held at the anchor, not where the hand is: a zero command lets the arm drift.
        return np.append(self._anchor[:2] + share * (goal[:2] - self._anchor[:2]), needed)


def _wanted_position(world: World, conjunct: Conjunct) -> float:
    """The joint position to move to: a little within the range that LIBERO asks for."""
    joint, limits = world.joint(conjunct[1]), world.wanted_range(conjunct)
    assert joint is not None and limits is not None
    low, high = limits
    margin = min(_MARGIN_M if joint.slides else _MARGIN_RAD, (high - low) / 2)
    return float(np.clip(joint.position, low + margin, high - margin))


def _hang(rotation: Array) -> float:
    """How far the hand reaches below its gripper site, metres."""
    hand = hand_boxes(opened=True).moved(rotation, np.zeros(3))
    down = np.array([0.0, 0.0, -1.0])
    return float((hand.extent(down) + hand.centres @ down).max())
