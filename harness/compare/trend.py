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
    """Steps of the level of the logs: PELT (Killick, Fearnhead and Eckley 2012), squared error.

    `ruptures.KernelCPD` with the linear kernel: the same search as `ruptures.Pelt(model="l2")`, in C.

    Single spikes are taken out first (Hampel's filter over five results). The noise is taken from the differences of
    neighbours, which a step moves little.
    """
    import numpy as np
    import ruptures

    if len(points) < 2 * SEGMENT:
        return []
    logs = np.log([point.value for point in points])
    noise = _noise(logs)
    level = _without_spikes(logs, SPIKE * noise)
    search = ruptures.KernelCPD(kernel="linear", min_size=SEGMENT).fit(level / _noise(level))
    bounds = [0, *search.predict(pen=PENALTY * math.log(len(points)))]
    levels = [float(np.exp(level[start:end].mean())) for start, end in pairwise(bounds)]
    return [
        ChangePoint(result=points[start].result, at=points[start].at, before=old, after=new)
        for start, (old, new) in zip(bounds[1:-1], pairwise(levels), strict=True)
    ]


def _noise(logs: FloatArray) -> float:
    """Standard deviation from the middle 80 % of the differences of neighbours, which is 0.66 of the whole's."""
    import numpy as np

    steps = np.sort(np.diff(logs))
    cut = len(steps) // 10
    return max(float(steps[cut : len(steps) - cut].std()) / (0.66 * math.sqrt(2)), 1e-6)


def _without_spikes(logs: FloatArray, far: float) -> FloatArray:
    import numpy as np

    cleaned = logs.copy()
    for at, value in enumerate(logs):
        middle = float(np.median(logs[max(0, at - 2) : at + 3]))
        if abs(value - middle) > far:
            cleaned[at] = middle
    return cleaned
