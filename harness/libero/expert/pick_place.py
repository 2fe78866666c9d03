"""The skill for On and In: grip an object from above, carry it over what stands between, put it down.

Every phase ends on a state of the scene, never on a timer. A grip that fails or slips is tried again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from enum import Enum

import numpy as np

from harness.libero.expert.grasps import FINGERTIP_BELOW_M, Grasp, lowest_free_site, plan_grasps
from harness.libero.expert.motion import CLEARANCE_M, CLOSE, OPEN, HandTarget, sideways
from harness.libero.expert.overhead import way_out
from harness.libero.expert.places import free_spot
from harness.libero.expert.planner import Conjunct
from harness.libero.geometry import Array
from harness.libero.world import World

_ALIGNED_M, _MISALIGNED_M = 0.007, 0.015
_ALIGNED_RAD = 0.1
_REACHED_M = 0.006
_AT_GRIP_M = 0.002
_RETREAT_M = 0.04
_NEAR_M = 0.03
_SLOW_M = 0.002
_INSISTENCE = 0.2
"""Share of the error that is added to the target at each slow step."""
_LEAD_STEPS = 1.5
"""So far ahead the hand looks when it slows down."""
_STEADY_OPENING_M = 0.0006
_CLOSING_M = 0.0765
"""Narrower than the open hand: before that the fingers are steady because they have not begun to move."""
_STALLED_M = 0.002
_STALLED_STEPS = 5
_STUCK_M = 0.004
_STUCK_STEPS = 12
_TURN_M = 0.1
"""A radian of turning counts as much as this way."""
_LOST_STEPS = 3
_ASTRAY = 1
"""So often a grasp is begun anew when the hand is pushed off its line on the way down."""
_LOWERING_M, _CAREFUL_M = 0.1, 0.028
"""How far below itself the lowered hand is sent; near enough to go on correcting its sides once it was off its line."""
_CORRIDOR_M = 0.07
"""Half width of the swept path that must be cleared from above: about the open hand's."""


class Phase(Enum):
    REACH = "above the object"
    DESCEND = "down to the grip"
    GRIP = "closing"
    CARRY = "up and over to the target"
    LOWER = "down onto the target"
    RELEASE = "opening"
    RETREAT = "up and away"


def uncovered_reason(world: World, conjunct: Conjunct) -> str | None:
    """Why there is no way to carry a conjunct's object, as the scene stands; None when there is one."""
    thing = conjunct[1]
    if thing not in world.movable:
        return f"no skill to carry {thing}"
    if not plan_grasps(world, thing, most=1):
        return f"no free grip on {thing}"
    return None


class PickPlace:
    """A skill: carries the object of an On or In conjunct to its target until the conjunct holds.

    Args:
        conjunct: `("on" | "in", object, target)`.
    """

    def __init__(self, world: World, conjunct: Conjunct) -> None:
        self._world = world
        self._conjunct = conjunct
        self._heights: deque[float] = deque(maxlen=_STALLED_STEPS + 1)
        self._openings: deque[float] = deque(maxlen=3)
        self._poses: deque[Array] = deque(maxlen=_STUCK_STEPS + 1)
        self._touches: deque[bool] = deque(maxlen=_LOST_STEPS)
        self._failed: list[Grasp] = []
        self._yaw = 0.0
        self._astray = 0
        self._aside = np.zeros(2)
        self._before = world.hand()[0]
        self._grasps = plan_grasps(world, self._thing)
        self._enter(Phase.REACH)

    @property
    def phase(self) -> str:
        """What it is doing, in words."""
        return self._phase.value if self._grasps else "no free grip"

    def act(self, hand: Array) -> HandTarget | None:
        """Where the hand should go next, from where it is (3,); None once the conjunct holds and the hand is clear."""
        self._heights.append(float(hand[2]))
        self._poses.append(np.append(hand, _TURN_M * self._world.hand()[1][:, 0]))
        self._openings.append(self._world.opening())
        self._touches.append(self._world.gripped(self._thing))
        if not self._grasps:
            return HandTarget(hand, 0.0, OPEN)
        steps = {
            Phase.REACH: self._reach,
            Phase.DESCEND: self._descend,
            Phase.GRIP: self._grip,
            Phase.CARRY: self._carry,
            Phase.LOWER: self._lower,
            Phase.RELEASE: self._release,
            Phase.RETREAT: self._retreat,
        }
        target = steps[self._phase](hand)
        return None if target is None else self._insisting(target, hand)

    def _insisting(self, target: HandTarget, hand: Array) -> HandTarget:
        """Near its target the hand is slowed, lest it overshoots; the error that stays once it is slow is added up, as
        the arm's joints do not answer to small commands."""
        error, moved = target.position - hand, hand - self._before
        self._before = hand
        if np.linalg.norm(error) > _NEAR_M:
            self._insistence = np.zeros(3)
            return target
        if np.linalg.norm(moved) < _SLOW_M:
            self._insistence = np.clip(self._insistence + _INSISTENCE * error, -_NEAR_M, _NEAR_M)
        return replace(target, position=target.position + self._insistence - _LEAD_STEPS * moved)

    # --- deciding ----------------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._heights.clear()
        self._openings.clear()
        self._poses.clear()
        self._touches.clear()
        self._insistence = np.zeros(3)
        self._anchor = self._world.hand()[0]
        self._ceiling = self._level = np.inf
        self._yielded = False

    @property
    def _thing(self) -> str:
        return self._conjunct[1]

    def _try_again(self) -> None:
        """Another grip next: those that failed go to the end of the line."""
        self._failed.append(self._grasps[0])
        self._enter(Phase.RETREAT)

    # --- phases ------------------------------------------------------------------------------------------

    def _reach(self, hand: Array) -> HandTarget | None:
        grip, yaw = self._grip_pose()
        above = grip.copy()
        above[2] = max(self._top(self._thing) + FINGERTIP_BELOW_M + CLEARANCE_M, grip[2])
        if np.linalg.norm(hand[:2] - grip[:2]) < _ALIGNED_M and self._turned_to(yaw) and hand[2] < above[2] + 0.05:
            self._enter(Phase.DESCEND)
            return self._descend(hand)
        if self._stuck():
            self._try_again()
            return self._retreat(hand)
        return HandTarget(self._over(hand, above, hang=FINGERTIP_BELOW_M), yaw, OPEN)

    def _descend(self, hand: Array) -> HandTarget | None:
        grip, yaw = self._grip_pose()
        off = float(np.linalg.norm(hand[:2] - grip[:2]))
        low = hand[2] < self._top(self._thing) + FINGERTIP_BELOW_M
        if off > _MISALIGNED_M and not low:
            self._astray += 1
            if self._astray > _ASTRAY:
                self._try_again()
                return self._retreat(hand)
            self._enter(Phase.REACH)
            return self._reach(hand)
        if (hand[2] - grip[2] < _AT_GRIP_M and off < _ALIGNED_M) or self._stalled():
            self._enter(Phase.GRIP)
            return self._grip(hand)
        return HandTarget(grip, yaw, OPEN)

    def _grip(self, hand: Array) -> HandTarget | None:
        if self._steady() and self._world.opening() < _CLOSING_M:
            if any(self._touches):
                self._enter(Phase.CARRY)
                self._aside = way_out(self._world, self._thing)
                self._anchor[:2] += self._aside
                return self._carry(hand)
            self._try_again()
            return self._retreat(hand)
        return HandTarget(self._anchor, self._yaw, CLOSE)

    def _carry(self, hand: Array) -> HandTarget | None:
        if self._slipped():
            self._try_again()
            return self._retreat(hand)
        if np.any(self._aside):
            if np.linalg.norm(hand[:2] - self._anchor[:2]) > _ALIGNED_M * 1.5 and not self._stuck():
                return HandTarget(np.append(self._anchor[:2], self._anchor[2] + CLEARANCE_M), self._yaw, CLOSE)
            self._aside = np.zeros(2)
        goal = self._place(hand)
        hang = hand[2] - self._bottom(self._thing)
        over = self._over(hand, np.append(goal, -np.inf), hang=hang)
        if np.linalg.norm(hand[:2] - goal) < _ALIGNED_M * 1.5:
            self._enter(Phase.LOWER)
            return self._lower(hand)
        return HandTarget(over, self._yaw, CLOSE)

    def _lower(self, hand: Array) -> HandTarget | None:
        if self._slipped():
            self._try_again()
            return self._retreat(hand)
        goal = self._place(hand)
        free = lowest_free_site(self._world, goal, self._yaw, self._thing) + 0.004
        if np.linalg.norm(hand[:2] - goal) > _MISALIGNED_M and not self._yielded:
            self._level = min(self._level, float(hand[2]))  # held: pushed sideways only, the arm drifts up
            if self._stalled():
                self._yielded = True  # as near as the arm gets here
                self._heights.clear()
            return HandTarget(np.append(goal, max(self._level, free)), self._yaw, CLOSE)
        if self._world.supported(self._thing) or hand[2] - free < _REACHED_M or self._stalled():
            self._enter(Phase.RELEASE)
            return self._release(hand)
        step = _LOWERING_M if self._level == np.inf else _CAREFUL_M
        return HandTarget(np.append(goal, max(free, hand[2] - step)), self._yaw, CLOSE, speed=0.6)

    def _release(self, hand: Array) -> HandTarget | None:
        if not self._world.gripped(self._thing):
            self._enter(Phase.RETREAT)
            return self._retreat(hand)
        return HandTarget(self._anchor, self._yaw, OPEN)

    def _retreat(self, hand: Array) -> HandTarget | None:
        risen = hand[2] - self._anchor[2] > _RETREAT_M
        if not risen and not self._stalled():
            return HandTarget(np.append(self._anchor[:2], hand[2] + 0.1), self._yaw, OPEN)
        if self._world.holds(self._conjunct):
            return None
        self._grasps, self._astray = _tried_last(plan_grasps(self._world, self._thing), self._failed), 0
        self._enter(Phase.REACH)
        return HandTarget(hand, self._yaw, OPEN)

    # --- places ------------------------------------------------------------------------------------------

    def _grip_pose(self) -> tuple[Array, float]:
        """Gripper site (3,) and yaw of the grasp that is tried; the yaw is kept while the object is in the hand."""
        grip, self._yaw = self._grasps[0].at(self._world, self._thing)
        return grip, self._yaw

    def _place(self, hand: Array) -> Array:
        """Where the hand must be (2,) for the object's origin to be over its target."""
        _, thing, target = self._conjunct
        goal = self._world.position(target)[:2]
        if self._world.is_region(target):
            goal = goal + free_spot(self._world, self._conjunct)
        return np.asarray(goal + hand[:2] - self._world.position(thing)[:2])

    def _over(self, hand: Array, goal: Array, hang: float) -> Array:
        """The next point on a way to `goal` (3,) that passes above everything between; `hang` is what hangs below."""
        holding = self._thing if self._phase is Phase.CARRY else None
        low = np.minimum(hand[:2], goal[:2]) - _CORRIDOR_M
        high = np.maximum(hand[:2], goal[:2]) + _CORRIDOR_M
        clear = -np.inf
        for body in self._world.bodies:
            if body != holding:
                lowest, highest = self._world.shapes(body).min(axis=1), self._world.shapes(body).max(axis=1)
                under = np.all(lowest[:, :2] < high, axis=1) & np.all(highest[:, :2] > low, axis=1)
                clear = max(clear, float(highest[under, 2].max(initial=-np.inf)))
        needed = max(clear + hang, float(self._anchor[2]) if holding else -np.inf) + CLEARANCE_M
        if hand[2] < needed - CLEARANCE_M and self._stalled():
            self._ceiling = float(hand[2])  # the arm reaches no higher here: over it goes, as high as it can
        needed = min(needed, self._ceiling)
        near = float(np.linalg.norm(hand[:2] - goal[:2])) < 0.03
        height = max(goal[2], needed) if not near or not np.isfinite(goal[2]) else goal[2]
        return np.append(sideways(hand, self._anchor, goal, -np.inf if near else needed), height)

    # --- facts -------------------------------------------------------------------------------------------

    def _top(self, name: str) -> float:
        return float(self._world.shapes(name)[:, :, 2].max())

    def _bottom(self, name: str) -> float:
        return float(self._world.shapes(name)[:, :, 2].min())

    def _turned_to(self, yaw: float) -> bool:
        closing = self._world.hand()[1][:, 0]
        wanted = np.array([-np.sin(yaw), np.cos(yaw)])
        return bool(abs(closing[:2] @ wanted) > np.cos(_ALIGNED_RAD))

    def _slipped(self) -> bool:
        """Whether the object is in the hand no more; a touch that is lost for a step comes back."""
        return len(self._touches) == self._touches.maxlen and not any(self._touches)

    def _stalled(self) -> bool:
        """Whether the hand has stopped rising or sinking, for instance on something it met."""
        heights = self._heights
        return len(heights) == heights.maxlen and abs(heights[-1] - heights[0]) < _STALLED_M

    def _stuck(self) -> bool:
        """Whether the hand neither moves nor turns any more: a joint is at its limit, or something is in the way."""
        poses = self._poses
        return len(poses) == poses.maxlen and float(np.ptp(np.array(poses), axis=0).max()) < _STUCK_M

    def _steady(self) -> bool:
        """Whether the fingers have stopped moving."""
        openings = self._openings
        return len(openings) == openings.maxlen and max(openings) - min(openings) < _STEADY_OPENING_M


def _tried_last(planned: list[Grasp], failed: list[Grasp]) -> list[Grasp]:
    """The planned grasps with those like one that failed moved to the end, the oldest failure first."""

    def last_failure(grasp: Grasp) -> int:
        alike = [
            number
            for number, other in enumerate(failed)
            if np.linalg.norm(grasp.offset - other.offset) < 0.02 and abs(grasp.closing @ other.closing) > 0.97
        ]
        return max(alike, default=-1)

    return sorted(planned, key=last_failure)
