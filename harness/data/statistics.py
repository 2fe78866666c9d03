"""Means and spreads of states and actions, and the normalisations they define.

`z-score`: (x − mean) / max(std, s); Dexbotic's pi0, pi05 and dm0, and openpi's pi0, but for the floor s.
`quantile`: the 1st percentile becomes −1 and the 99th +1; openpi's pi05 (`openpi/transforms.py`).
`clipped-quantile`: the same, and what lies beyond is cut to ±1; CogACT.
`min-max`: the least value becomes −1 and the greatest +1.

For the last three the half range takes the place of the standard deviation, and has the same floor: a spread below
which no dimension is taken to vary.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from harness.data.poses import relative, resolved, tool_frame
from harness.records import Value
from harness.suite import Normalisation

STATE_FLOOR = (0.01, 0.01, 0.01, 0.1, 0.1, 0.1, 0.002, 0.002)
"""Smallest spread a state dimension is divided by: 1 cm, 0.1 rad, 2 mm of a finger joint.

The scripted and human demonstrations of a task hardly turn the tool: dividing by their spread would blow up the
least deviation a policy meets by itself.
"""
ACTION_FLOOR = (0.01,) * 7
"""Smallest spread of an action dimension, in controller units (full scale is 1)."""
QUANTILE_ROWS = 300_000
"""Beyond so many rows, quantiles are those of an even subset: the 1st percentile is then known to ±0.02 percent."""
_THINNING = 3
"""Shares no factor with the chunk lengths in use (10, 16, 50), so that no place of a chunk is left out."""


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
    minimum: tuple[float, ...] = ()
    maximum: tuple[float, ...] = ()
    """Both empty in a checkpoint from before `min-max` was offered."""
    normalisation: Normalisation = "z-score"

    def normalise(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        """(…, D) as a model reads them: float32, see above."""
        centre, spread = self._line()
        return np.asarray(self._cut((values - centre) / spread), np.float32)

    def unnormalise(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        """The inverse of `normalise`, where that cut nothing off."""
        centre, spread = self._line()
        return np.asarray(self._cut(values) * spread + centre, np.float32)

    def _line(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What becomes 0, and how far from it ±1 is."""
        if self.normalisation == "z-score":
            return np.asarray(self.mean), np.maximum(self.std, self.floor)
        ends = (self.minimum, self.maximum) if self.normalisation == "min-max" else (self.q01, self.q99)
        low, high = np.asarray(ends[0]), np.asarray(ends[1])
        return (high + low) / 2, np.maximum((high - low) / 2, self.floor)

    def _cut(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.clip(values, -1, 1) if self.normalisation == "clipped-quantile" else values


class Statistics(Value):
    """What a policy needs to read states and to write actions; saved beside its weights."""

    state: Moments
    """Of states in `tool_frame` (see `harness.data.poses`)."""
    action: Moments
    """Of actions as the model writes them: relative to the state when `delta_actions`."""
    delta_actions: bool = False

    def states(self, raw: NDArray[np.float64]) -> NDArray[np.float32]:
        """LIBERO states (…, 7 or 8) as a model reads them, before padding."""
        return self.state.normalise(tool_frame(raw))

    def actions(self, chunks: NDArray[np.float64], raw: NDArray[np.float64]) -> NDArray[np.float32]:
        """Controller actions (n, H, 7), looked at from states (n, 7 or 8), as a model writes them."""
        return self.action.normalise(relative(chunks, raw) if self.delta_actions else chunks)

    def controller(self, chunks: NDArray[np.floating], raw: NDArray[np.float64]) -> NDArray[np.float32]:
        """The inverse of `actions`: what a model wrote (n, H, 7) as float32 controller actions."""
        actions = self.action.unnormalise(chunks)
        return np.asarray(resolved(actions, raw), np.float32) if self.delta_actions else actions


def moments(
    rows: Iterable[NDArray[np.floating]], floor: tuple[float, ...], normalisation: Normalisation = "z-score"
) -> Moments:
    """Moments over the rows of all arrays (n, D), in one pass and bounded memory; D is the length of `floor`."""
    kept = _Subset()
    count, mean, squares = 0, np.zeros(len(floor)), np.zeros(len(floor))
    least, most = np.full(len(floor), np.inf), np.full(len(floor), -np.inf)
    for part in rows:
        values = np.asarray(part, dtype=np.float64)
        added, centre = len(values), values.mean(0)
        # Chan, Golub, LeVeque (1979): merging two sets' sums of squares about their own means.
        shift, total = centre - mean, count + added
        squares += ((values - centre) ** 2).sum(0) + shift**2 * (count * added / total)
        mean += shift * (added / total)
        count = total
        least, most = np.minimum(least, values.min(0)), np.maximum(most, values.max(0))
        kept.add(values)
    low, high = np.quantile(kept.rows(), [0.01, 0.99], axis=0)
    return Moments(
        count=count,
        mean=tuple(mean.tolist()),
        std=tuple(np.sqrt(squares / count).tolist()),
        q01=tuple(low.tolist()),
        q99=tuple(high.tolist()),
        floor=floor,
        minimum=tuple(least.tolist()),
        maximum=tuple(most.tolist()),
        normalisation=normalisation,
    )


class _Subset:
    """Every n-th row of a stream: all rows up to `QUANTILE_ROWS`, then ever fewer, never more than that many."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.float64]] = []
        self._kept, self._seen, self._stride = 0, 0, 1

    def add(self, values: NDArray[np.float64]) -> None:
        part = values[-self._seen % self._stride :: self._stride]
        self._seen += len(values)
        self._parts.append(part)
        self._kept += len(part)
        while self._kept > QUANTILE_ROWS:
            self._parts = [self.rows()[::_THINNING]]
            self._kept, self._stride = len(self._parts[0]), self._stride * _THINNING

    def rows(self) -> NDArray[np.float64]:
        return np.concatenate(self._parts)
