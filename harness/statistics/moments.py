"""Sums over figures: of the mean of some, and of figures of which some may be missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Number = TypeVar("Number", int, float)


def variance_of_mean(values: Sequence[float]) -> float:
    """Of two values or more."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)


def of_all(values: Iterable[Number | None], summary: Callable[[list[Number]], Number]) -> Number | None:
    """A summary (`max`, `sum`, `median`) of figures; None when one is missing, or when there are none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return summary(known) if known and len(known) == len(found) else None
