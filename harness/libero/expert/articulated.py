"""The skill for Open, Close, TurnOn and TurnOff: takes hold of a drawer, a door or a knob and moves it on its joint."""

from __future__ import annotations

import numpy as np

from harness.libero.expert.handles import Hold, plan_holds
from harness.libero.expert.motion import CLOSE, HandTarget
from harness.libero.expert.planner import Conjunct
from harness.libero.expert.taking import Taking
from harness.libero.geometry import Array, Boxes, boxes_of
from harness.libero.joint import Joint
from harness.libero.world import World

PREDICATES = ("open", "close", "turnon", "turnoff")

_MARGIN_M, _MARGIN_RAD = 0.008, 0.1
"""How far beyond the nearest joint position that will do."""
_THERE = 0.002
_LEAD_M, _LEAD_RAD = 0.04, 0.4
"""How far ahead of the part the hand is sent."""
_LOST_M = 0.04


def uncovered_reason(world: World, conjunct: Conjunct) -> str | None:
    """Why there is no way to move a conjunct's part; None when there is one."""
    if world.joint(conjunct[1]) is None or world.wanted_range(conjunct) is None:
        return f"no skill to {' '.join(conjunct)}"
    return None


class MovePart(Taking):
    """A skill: moves the part that a conjunct names until the conjunct holds.

    Args:
        conjunct: `("open" | "close" | "turnon" | "turnoff", region or fixture)`.
    """

    def __init__(self, world: World, conjunct: Conjunct) -> None:
        self._conjunct = conjunct
        self._to = _wanted_position(world, conjunct)
        self._holds = plan_holds(world, conjunct[1], self._to)
        super().__init__(world)

    def _has_hold(self) -> bool:
        return bool(self._holds)

    @property
    def _hold(self) -> Hold:
        return self._holds[0]

    @property
    def _joint(self) -> Joint:
        joint = self._world.joint(self._conjunct[1])
        assert joint is not None
        return joint

    def _pose(self) -> tuple[Array, Array]:
        joint = self._joint
        return self._hold.at(joint, joint.position)

    def _back(self) -> Array:
        return self._pose()[1] @ self._hold.rotation.T @ self._hold.back

    def _grips(self) -> bool:
        return self._hold.grips

    def _obstacles(self) -> Boxes:
        body = self._joint.body
        return boxes_of([self._world.boxes(body), self._world.boxes_besides(body)])

    def _work(self) -> HandTarget | None:
        joint = self._joint
        left = self._to - joint.position
        over = left * (self._to - self._hold.joint_position) < 0
        enough = self._world.holds(self._conjunct) and (over or abs(left) < _THERE)
        if enough or self._off_by()[0] > _LOST_M or self._stalled():
            return None
        lead = np.copysign(_LEAD_M if joint.slides else _LEAD_RAD, left)
        position, rotation = self._hold.at(joint, joint.position + lead)
        return HandTarget(position, 0.0, CLOSE, rotation=rotation)

    def _work_in_words(self) -> str:
        return "moving the part"

    def _progress(self) -> float:
        return self._joint.position

    def _done(self) -> bool:
        return self._world.holds(self._conjunct)

    def _try_next(self) -> None:
        failed = self._hold

        def like_failed(hold: Hold) -> bool:
            return hold.grips == failed.grips and float(np.abs(hold.rotation - failed.rotation).max()) < 0.3

        self._holds = sorted(plan_holds(self._world, self._conjunct[1], self._to), key=like_failed)


def _wanted_position(world: World, conjunct: Conjunct) -> float:
    """The joint position to move to: a little within the range that LIBERO asks for."""
    joint, limits = world.joint(conjunct[1]), world.wanted_range(conjunct)
    assert joint is not None
    assert limits is not None
    low, high = limits
    margin = min(_MARGIN_M if joint.slides else _MARGIN_RAD, (high - low) / 2)
    return float(np.clip(joint.position, low + margin, high - margin))
