"""The expert with a handicap: a policy whose success rate lies where one wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from harness.libero.expert.expert import Expert, uncovered_reason
from harness.libero.expert.motion import OPEN
from harness.libero.expert.planner import Conjunct
from harness.libero.geometry import Array
from harness.libero.handicap import Handicap

if TYPE_CHECKING:
    from harness.libero.world import World

_MOTION = 6
"""Components of an action before the gripper's."""


class GradedExpert:
    """An expert that errs as its handicap says.

    Args:
        world: of a scene that has just been reset.
        seed: of its draws; one that depends on the episode alone makes the episode repeatable.
    """

    def __init__(self, world: World, handicap: Handicap, seed: int) -> None:
        self._handicap, self._generator = handicap, np.random.default_rng(seed)
        self._steps, self._gripper = 0, OPEN
        mistakes = self._generator.random() < handicap.wrong_object
        self._expert = Expert(cast("World", _Mistaken(world, self._generator)) if mistakes else world)

    @property
    def doing(self) -> str:
        """What the expert beneath works on, in words."""
        return self._expert.doing

    def act(self) -> Array:
        """The next action: float64 (7,) in [-1, 1]."""
        flaws, step = self._handicap, self._steps
        self._steps += 1
        if flaws.frozen is not None and step >= flaws.frozen:
            return np.append(np.zeros(_MOTION), self._gripper)
        action = self._expert.act()
        action[:_MOTION] += flaws.noise * self._generator.standard_normal(_MOTION)
        if flaws.release is not None and step >= flaws.release:
            action[_MOTION] = OPEN
        self._gripper = float(action[_MOTION])
        return np.clip(action, -1.0, 1.0)


class _Mistaken:
    """A world seen wrongly: the goal is about another object than the task's. It stays the task's without another."""

    def __init__(self, world: World, generator: np.random.Generator) -> None:
        self._world = world
        self.goal: tuple[Conjunct, ...] = world.goal
        named = {part for conjunct in world.goal for part in conjunct}
        others = [name for name in world.movable if name not in named]
        for other in generator.permutation(np.array(others, dtype=object)):
            self.goal = tuple((first, str(other), *rest) for first, _, *rest in world.goal if rest)[:1]
            if uncovered_reason(cast("World", self)) is None:
                return
        self.goal = world.goal

    def __getattr__(self, name: str) -> object:
        return getattr(self._world, name)
