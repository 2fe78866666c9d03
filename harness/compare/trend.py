"""Where the latest result stands in the history of its suite. A reading aid: no verdict and no exit code hangs on it.

The pinned reference is the accepted baseline; the rolling one is the results just before. A slow drift shows against
the first and hides from the second; a change point says since when.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from harness.records import Value
from harness.statistics.interval import Interval
from harness.statistics.prediction import predict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

ROLLING = 10
"""Earlier results that make the rolling reference; at least `LEAST`."""
LEAST = 3
SEGMENT = 3
"""Fewest results on each side of a change point; a single spike is none."""
SPIKE = 4.0
"""Standard deviations from the median of its neighbours beyond which one result is a spike."""
MOST = 1000
"""Latest results among which change points are looked for: the work grows with the square of their number."""
PENALTY = 4.0
"""Times log n. Simulated with independent noise of 1 %: a change is called in 6 % of series of 12 results and 0.7 %
from 20 on; a step of 10 % is dated to the very result in 97 %, one of 3 % in 70 to 83 %."""


class Point(Value):
    """One result's figure: the geometric mean over its processes."""

    result: str
    at: str
    """ISO 8601, UTC."""
    value: float


class ChangePoint(Value):
    """The first result of a new level."""

    result: str
    at: str
    before: float
    after: float
    """Geometric means of the segments on both sides, in the metric's unit."""


class Trend(Value):
    """One metric of one cell over the results of a suite on one machine."""

    subject: str
    metric: str
    results: int
    latest: float
    pinned: float | None
    """Latest over the accepted baseline's geometric mean; None without one."""
    rolling: Interval | None
    """Latest over the rolling reference with its prediction interval; None with fewer than `LEAST` results before."""
    changes: list[ChangePoint]
    """Oldest first."""


def trend(
    subject: str, metric: str, series: Sequence[Point], accepted: Sequence[float], confidence: float
) -> Trend | None:
    """Reads one series, oldest first. None without a positive figure.

    Args:
        accepted: raw figures of the baseline; may be empty.
    """
    points = [point for point in series if math.isfinite(point.value) and point.value > 0]
    if not points:
        return None
    latest, before = points[-1], [point.value for point in points[:-1]][-ROLLING:]
    return Trend(
        subject=subject,
        metric=metric,
        results=len(points),
        latest=latest.value,
        pinned=latest.value / statistics.geometric_mean(accepted) if accepted else None,
        rolling=_rolling(before, latest.value, confidence) if len(before) >= LEAST else None,
        changes=change_points(points),
    )


def _rolling(before: list[float], latest: float, confidence: float) -> Interval:
    found = predict(before, [latest], (1 - confidence) / 2)
    return Interval(
        estimate=found.ratio,
        low=None if found.low is None else found.ratio * found.low,
        high=None if found.high is None else found.ratio * found.high,
        confidence=confidence,
        n=len(before),
    )


def change_points(points: Sequence[Point]) -> list[ChangePoint]:
    """Steps of the level of the logs among the last `MOST` results: squared error with a penalty for each step.

    Single spikes are taken out first (Hampel's filter over five results). The noise is taken from the differences of
    neighbours, which a step moves little.
    """
    import numpy as np

    points = points[-MOST:]
    if len(points) < 2 * SEGMENT:
        return []
    logs = np.log([point.value for point in points])
    noise = _noise(logs)
    level = _without_spikes(logs, SPIKE * noise)
    bounds = [0, *segment_ends(level / _noise(level), PENALTY * math.log(len(points)))]
    levels = [float(np.exp(level[start:end].mean())) for start, end in pairwise(bounds)]
    return [
        ChangePoint(result=points[start].result, at=points[start].at, before=old, after=new)
        for start, (old, new) in zip(bounds[1:-1], pairwise(levels), strict=True)
    ]


def segment_ends(values: FloatArray, penalty: float) -> list[int]:
    """Ends of the segments that cost least: squared deviations from each one's mean, and a penalty for each.

    Optimal partitioning (Jackson et al. 2005, IEEE Signal Processing Letters 12: 105-108), the optimum that PELT
    (Killick, Fearnhead and Eckley 2012) finds too: the same ends as `ruptures.KernelCPD(kernel="linear")`, without
    the second its import takes. The last end is the number of values.
    """
    import numpy as np

    n = len(values)
    sums, squares = (np.concatenate([[0.0], np.cumsum(values**power)]) for power in (1, 2))
    least, cut = np.full(n + 1, np.inf), np.zeros(n + 1, dtype=int)
    least[0] = 0.0
    for end in range(SEGMENT, n + 1):
        starts = slice(0, end - SEGMENT + 1)
        length = np.arange(end, SEGMENT - 1, -1)
        cost = least[starts] + squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / length
        cut[end] = int(np.argmin(cost))
        least[end] = cost[cut[end]] + penalty
    ends = [n]
    while cut[ends[-1]] > 0:
        ends.append(int(cut[ends[-1]]))
    return ends[::-1]


def _noise(logs: FloatArray) -> float:
    """Standard deviation from the middle 80 % of the differences of neighbours, which is 0.66 of the whole's."""
    import numpy as np

    steps = np.sort(np.diff(logs))
    cut = len(steps) // 10
    return max(float(steps[cut : len(steps) - cut].std()) / (0.66 * math.sqrt(2)), 1e-6)


def _without_spikes(logs: FloatArray, far: float) -> FloatArray:
    """Each value further than that from the median of the five around it, at the ends fewer, becomes the median."""
    import numpy as np

    around = np.lib.stride_tricks.sliding_window_view(np.pad(logs, 2, constant_values=np.nan), 5)
    middle = np.nanmedian(around, axis=1)
    return np.where(np.abs(logs - middle) > far, middle, logs)
