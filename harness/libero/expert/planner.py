"""Which part of a goal to work on next."""

from __future__ import annotations

from typing import Protocol

Conjunct = tuple[str, ...]
"""One part of a BDDL goal, names in lower case: `("on", "akita_black_bowl_1", "plate_1")`."""

_STAGES = {"open": 0, "turnon": 1, "turnoff": 1, "on": 2, "in": 2, "close": 3}
"""What is open gets filled before it is closed, and a knob is free before anything stands beside it."""


class Facts(Protocol):
    """What the planner asks of a world."""

    @property
    def goal(self) -> tuple[Conjunct, ...]: ...

    def holds(self, conjunct: Conjunct) -> bool: ...

    def base(self, target: str) -> str:
        """The object or fixture that a region belongs to; an object or fixture itself."""

    def lid(self, region: str) -> str | None:
        """What must be open for something to get into a region: its drawer or door; None for an open one."""


def next_conjunct(world: Facts) -> Conjunct | None:
    """What to make hold next; None when the whole goal holds.

    The first conjunct, by stage, that does not hold; what others are put on or into is put in its own place first. To
    put something into what is closed comes after opening it, whether or not the goal says so.
    """
    unmet = [conjunct for conjunct in world.goal if not world.holds(conjunct)]
    if not unmet:
        return None
    first = min(unmet, key=lambda conjunct: (_STAGES.get(conjunct[0], 0), _depth(world, unmet, conjunct)))
    lid = world.lid(first[2]) if first[0] == "in" else None
    opened = None if lid is None else ("open", lid)
    return opened if opened is not None and not world.holds(opened) else first


def _depth(world: Facts, unmet: list[Conjunct], conjunct: Conjunct) -> int:
    """How many of the unmet placements must come before this one."""
    depth = 0
    while len(conjunct) == 3 and depth < len(unmet):
        below = [other for other in unmet if len(other) == 3 and other[1] == world.base(conjunct[2])]
        if not below:
            break
        depth, conjunct = depth + 1, below[0]
    return depth
