"""What skills share that take hold of something with the hand turned as need be: there, on, at work, off and away.

Every phase ends on a state of the scene. A hold that cannot be reached, slips or does nothing gives way to the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from enum import Enum

import numpy as np

from harness.libero.expert.handles import hand_boxes
from harness.libero.expert.motion import CLEARANCE_M, CLOSE, OPEN, HandTarget, sideways, turn_towards
from harness.libero.geometry import Array, Boxes
from harness.libero.world import World

_CORRIDOR_M = 0.08
"""Half width of the swept path that must be cleared from above: about the turned hand's."""
_NEAR_M = 0.03
_THERE_M, _REACHED_M = 0.012, 0.003
_TURNED_RAD = 0.12
_INSISTENCE = 0.15
"""Share of the error that is added to the target at each step, near it."""
_UPRIGHT_RAD = 0.3
_LEFT = 0.6
"""Share of the way back after which the hand is clear."""
_STALL_STEPS = 12
_STALLED_M = 0.002
_STALLED_RAD = 0.02
_STEADY_STEPS = 5
_STEADY_OPENING_M = 0.0006
_LOOSE_M = 0.06
_EMPTY_M = 0.004
"""Fingers closer than this hold nothing."""


class Phase(Enum):
    REACH = "over to the hold"
    ENTER = "onto the hold"
    GRIP = "closing"
    WORK = "at work"
    RELEASE = "letting go"
    LEAVE = "away from the hold"
    RETURN = "upright again"


class Taking(ABC):
    """A skill's way to a hold and back; the skill says what is held and what is done with it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._home = world.hand()[0]
        self._places: deque[Array] = deque(maxlen=_STALL_STEPS + 1)
        self._pressed: Array = np.zeros(3)
        self._enter(Phase.REACH)

    @property
    def phase(self) -> str:
        """What it is doing, in words."""
        if not self._has_hold():
            return "no free hold"
        return self._work_in_words() if self._phase is Phase.WORK else self._phase.value

    def act(self, hand: Array) -> HandTarget | None:
        """Where the hand should go next, from where it is (3,); None once the work is done and the hand is clear."""
        if not self._has_hold():
            return HandTarget(hand, 0.0, OPEN)
        steps = {
            Phase.REACH: self._reach,
            Phase.ENTER: self._go_in,
            Phase.GRIP: self._grip,
            Phase.WORK: self._go_on,
            Phase.RELEASE: self._release,
            Phase.LEAVE: self._leave,
            Phase.RETURN: self._return,
        }
        self._places.append(np.concatenate([hand, [self._progress(), self._off_by()[1], self._world.opening()]]))
        return steps[self._phase](hand)

    # --- the skill's own ---------------------------------------------------------------------------------

    @abstractmethod
    def _has_hold(self) -> bool: ...

    @abstractmethod
    def _pose(self) -> tuple[Array, Array]:
        """Of the hold, as the scene is now: position (3,) and rotation (3, 3) of the gripper site."""

    @abstractmethod
    def _back(self) -> Array:
        """From the hold to where the hand comes from, as the scene is now, metres (3,)."""

    @abstractmethod
    def _grips(self) -> bool: ...

    @abstractmethod
    def _obstacles(self) -> Boxes:
        """What the hand must pass above on its way to the hold."""

    @abstractmethod
    def _work(self) -> HandTarget | None:
        """Where the hand should go next, now that it holds; None when that is over, well or not."""

    @abstractmethod
    def _work_in_words(self) -> str: ...

    @abstractmethod
    def _progress(self) -> float:
        """Something that changes, in metres or radians, while the work gets on."""

    @abstractmethod
    def _done(self) -> bool: ...

    @abstractmethod
    def _try_next(self) -> None:
        """Plans again, with the hold that failed last."""

    # --- phases ------------------------------------------------------------------------------------------

    def _reach(self, hand: Array) -> HandTarget | None:
        goal, rotation = self._pose()
        goal = goal + self._back()
        if np.linalg.norm(hand - goal) < _THERE_M and self._off_by()[1] < _TURNED_RAD:
            self._enter(Phase.ENTER)
            return self._go_in(hand)
        target = HandTarget(self._over(hand, goal, rotation), 0.0, self._gripper(), rotation=rotation)
        if self._stalled() and hand[2] < target.position[2] - _NEAR_M:
            self._ceiling = float(hand[2])  # the arm reaches no higher here: over it goes, as high as it can
        elif self._stalled():
            return self._give_up(hand)
        return target

    def _go_in(self, hand: Array) -> HandTarget | None:
        goal, rotation = self._pose()
        distance = float(np.linalg.norm(hand - goal))
        if distance < _REACHED_M or (self._stalled() and distance < _THERE_M):
            self._enter(Phase.GRIP if self._grips() else Phase.WORK)
            return self._grip(hand) if self._grips() else self._go_on(hand)
        if self._stalled():
            return self._give_up(hand)
        if distance < _NEAR_M:  # the arm's joints do not answer to small commands: what stays is added up
            self._pressed = np.clip(self._pressed + _INSISTENCE * (goal - hand), -_NEAR_M, _NEAR_M)
        return HandTarget(goal + self._pressed, 0.0, self._gripper(), speed=0.6, rotation=rotation)

    def _grip(self, hand: Array) -> HandTarget | None:
        openings = [place[5] for place in self._places][-3:]
        if len(self._places) >= _STEADY_STEPS and max(openings) - min(openings) < _STEADY_OPENING_M:
            if openings[-1] < _EMPTY_M:
                return self._give_up(hand)
            self._enter(Phase.WORK)
            return self._go_on(hand)
        return HandTarget(self._anchor, 0.0, CLOSE, rotation=self._turned)

    def _go_on(self, hand: Array) -> HandTarget | None:
        return self._work() or self._give_up(hand)

    def _give_up(self, hand: Array) -> HandTarget | None:
        self._enter(Phase.RELEASE)
        return self._release(hand)

    def _release(self, hand: Array) -> HandTarget | None:
        if not self._grips() or self._world.opening() > _LOOSE_M:
            self._enter(Phase.LEAVE)
            return self._leave(hand)
        return HandTarget(self._anchor, 0.0, OPEN, rotation=self._turned)

    def _leave(self, hand: Array) -> HandTarget | None:
        back = self._away
        if (hand - self._anchor) @ back > _LEFT * (back @ back) or self._stalled():
            self._enter(Phase.RETURN)
            return self._return(hand)
        return HandTarget(self._anchor + back, 0.0, self._gripper(), rotation=self._turned)

    def _return(self, hand: Array) -> HandTarget | None:
        """Turns the hand down again on the way to where it came from: turned far out, the arm locks its elbow."""
        tilt = float(np.arccos(np.clip(-self._world.hand()[1][2, 2], -1.0, 1.0)))
        if tilt < _UPRIGHT_RAD or self._stalled():
            if self._done():
                return None
            self._try_next()
            self._enter(Phase.REACH)
            return HandTarget(hand, 0.0, OPEN, rotation=self._turned)
        return HandTarget(self._home, 0.0, OPEN)

    # --- facts -------------------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._places.clear()
        self._anchor, self._turned = self._world.hand()
        self._away = self._back() if phase is Phase.LEAVE else np.zeros(3)
        self._ceiling = np.inf
        self._pressed = np.zeros(3)

    def _off_by(self) -> tuple[float, float]:
        """How far the hand is from its hold: metres and radians."""
        hand, rotation = self._world.hand()
        wanted, turned = self._pose()
        return float(np.linalg.norm(hand - wanted)), float(np.linalg.norm(turn_towards(turned, rotation)))

    def _gripper(self) -> float:
        return OPEN if self._grips() else CLOSE

    def _stalled(self) -> bool:
        """Whether neither hand nor work has moved for a while."""
        if len(self._places) <= _STALL_STEPS:
            return False
        moved = np.abs(self._places[-1] - self._places[0])
        return bool(np.linalg.norm(moved[:3]) < _STALLED_M and moved[3] < _STALLED_M and moved[4] < _STALLED_RAD)

    def _over(self, hand: Array, goal: Array, rotation: Array, hang: float = 0.0) -> Array:
        """The next point on a way to `goal` (3,) that passes above everything between.

        Args:
            hang: how far what is held reaches below the gripper site, metres.
        """
        now = self._world.hand()[1]
        turned = float(np.linalg.norm(turn_towards(rotation, now))) < 2 * _TURNED_RAD
        if float(np.linalg.norm(hand[:2] - goal[:2])) < _NEAR_M and turned:
            return goal
        low = np.minimum(hand[:2], goal[:2]) - _CORRIDOR_M
        high = np.maximum(hand[:2], goal[:2]) + _CORRIDOR_M
        boxes = self._obstacles()
        reach = np.stack([boxes.extent(axis) for axis in np.eye(3)], axis=1)
        under = np.all(boxes.centres[:, :2] - reach[:, :2] < high, axis=1)
        under &= np.all(boxes.centres[:, :2] + reach[:, :2] > low, axis=1)
        clear = float((boxes.centres + reach)[under, 2].max(initial=-np.inf))
        needed = min(max(clear + max(hang, _hang(now), _hang(rotation)) + CLEARANCE_M, goal[2]), self._ceiling)
        return np.append(sideways(hand, self._anchor, goal, needed), needed)


def _hang(rotation: Array) -> float:
    """How far the hand reaches below its gripper site, metres."""
    hand = hand_boxes(opened=True).moved(rotation, np.zeros(3))
    down = np.array([0.0, 0.0, -1.0])
    return float((hand.extent(down) + hand.centres @ down).max())
