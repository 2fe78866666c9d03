"""Means and spreads of states and actions, and the normalisation they define."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from harness.records import Value

STATE_FLOOR = (0.01, 0.01, 0.01, 0.1, 0.1, 0.1, 0.002, 0.002)
"""Smallest spread a state dimension is divided by: 1 cm, 0.1 rad, 2 mm of a finger joint.

The scripted and human demonstrations of a task hardly turn the tool: dividing by their spread would blow up the
least deviation a policy meets by itself.
"""
ACTION_FLOOR = (0.01,) * 7
"""Smallest spread of an action dimension, in controller units (full scale is 1)."""


class Moments(Value):
    """Per dimension, over all rows."""

    count: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Population standard deviation."""
    q01: tuple[float, ...]
    q99: tuple[float, ...]
    floor: tuple[float, ...]
    """Smallest spread used for normalisation."""

    def normalise(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        """(x − mean) / max(std, floor), the z-score of Dexbotic and openpi but for the floor; (…, D) float32."""
        return np.asarray((values - np.asarray(self.mean)) / self._scale(), np.float32)

    def unnormalise(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        """The inverse of `normalise`."""
        return np.asarray(values * self._scale() + np.asarray(self.mean), np.float32)

    def _scale(self) -> NDArray[np.float64]:
        return np.maximum(self.std, self.floor)


class Statistics(Value):
    """What a policy needs to read states and to write actions; saved beside its weights."""

    state: Moments
    """Of states in `tool_frame` (see `harness.data.transforms`)."""
    action: Moments


def moments(rows: Iterable[NDArray[np.floating]], floor: tuple[float, ...]) -> Moments:
    """Moments over the rows of all arrays (n, D), one pass; D is the length of `floor`."""
    parts: list[NDArray[np.float64]] = []
    count, mean, squares = 0, np.zeros(len(floor)), np.zeros(len(floor))
    for part in rows:
        values = np.asarray(part, dtype=np.float64)
        added, centre = len(values), values.mean(0)
        # Chan, Golub, LeVeque (1979): merging two sets' sums of squares about their own means.
        shift, total = centre - mean, count + added
        squares += ((values - centre) ** 2).sum(0) + shift**2 * (count * added / total)
        mean += shift * (added / total)
        count = total
        parts.append(values)
    low, high = np.quantile(np.concatenate(parts), [0.01, 0.99], axis=0)
    return Moments(
        count=count,
        mean=tuple(mean.tolist()),
        std=tuple(np.sqrt(squares / count).tolist()),
        q01=tuple(low.tolist()),
        q99=tuple(high.tolist()),
        floor=floor,
    )
