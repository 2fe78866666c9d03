"""The expert: one action from the scene's exact state. It works on the goal's conjuncts, one skill at a time."""

from __future__ import annotations

from typing import Protocol

from harness.libero.expert import articulated, insert, pick_place
from harness.libero.expert.grasps import plan_grasps
from harness.libero.expert.motion import OPEN, HandTarget, towards
from harness.libero.expert.overhead import open_above
from harness.libero.expert.planner import Conjunct, next_conjunct
from harness.libero.geometry import Array
from harness.libero.world import World


class Skill(Protocol):
    """Makes one conjunct hold, in closed loop: every call sees the scene as it is."""

    @property
    def phase(self) -> str:
        """What it is doing, in words."""

    def act(self, hand: Array) -> HandTarget | None:
        """Where the hand should go next, from where it is (3,); None once the conjunct holds and the hand is clear."""


def uncovered_reason(world: World) -> str | None:
    """Why the expert has no skill for the goal as it stands; None when it has. Conjuncts that hold need no skill."""
    for conjunct in world.goal:
        if world.holds(conjunct):
            continue
        skills = {"on": pick_place, "in": pick_place} | dict.fromkeys(articulated.PREDICATES, articulated)
        skill = insert if conjunct[0] == "in" and world.lid(conjunct[2]) is not None else skills.get(conjunct[0])
        reason = skill.uncovered_reason(world, conjunct) if skill else f"no skill to {' '.join(conjunct)}"
        if reason is not None:
            return reason
    return None


class Expert:
    """Acts until the goal holds. One per episode; reads `world` at each `act`.

    Args:
        world: of a scene that has just been reset.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._skill: Skill | None = None
        self._conjunct: Conjunct | None = None

    @property
    def doing(self) -> str:
        """The conjunct it works on and the phase of its skill, in words."""
        if self._skill is None or self._conjunct is None:
            return "nothing"
        return f"{' '.join(self._conjunct)}: {self._skill.phase}"

    def act(self) -> Array:
        """The next action: float64 (7,) in [-1, 1]."""
        hand, rotation = self._world.hand()
        target = self._skill.act(hand) if self._skill is not None else None
        if target is None:
            self._conjunct = next_conjunct(self._world)
            self._skill = None if self._conjunct is None else _skill_for(self._world, self._conjunct)
            target = self._skill.act(hand) if self._skill is not None else None
        return towards(target or HandTarget(hand, 0.0, OPEN), hand, rotation, self._world.wrist())


def _skill_for(world: World, conjunct: Conjunct) -> Skill:
    if conjunct[0] in articulated.PREDICATES:
        return articulated.MovePart(world, conjunct)
    thing, target = conjunct[1:]
    if conjunct[0] == "in" and world.lid(target) is not None:
        from_above = open_above(world, thing, target) and bool(plan_grasps(world, thing, most=1))
        if not from_above:
            return insert.Insert(world, conjunct)
    return pick_place.PickPlace(world, conjunct)
