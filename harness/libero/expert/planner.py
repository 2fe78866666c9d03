"""Which part of a goal to work on next."""

from __future__ import annotations

from typing import Protocol

Conjunct = tuple[str, ...]
"""One part of a BDDL goal, names in lower case: `("on", "akita_black_bowl_1", "plate_1")`."""


class Facts(Protocol):
    """What the planner asks of a world."""

    @property
    def goal(self) -> tuple[Conjunct, ...]: ...

    def holds(self, conjunct: Conjunct) -> bool: ...


def next_conjunct(world: Facts) -> Conjunct | None:
    """The first part of the goal that does not hold yet; None when all hold."""
    return next((conjunct for conjunct in world.goal if not world.holds(conjunct)), None)
