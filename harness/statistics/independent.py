"""The ratio of two results' figures: independent processes on either side, nothing paired."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.statistics.interval import Interval
from harness.statistics.logscale import ratio_of
from harness.statistics.moments import variance_of_mean


def independent_ratio(reference: Sequence[float], candidate: Sequence[float], confidence: float = 0.95) -> Interval:
    """Geometric mean of `candidate` over that of `reference`, with Welch's t interval on the log scale (Welch 1947).

    As `scipy.stats.ttest_ind(..., equal_var=False).confidence_interval`, with `scipy.special.stdtrit`. Without two
    figures on both sides there is no interval. `n` is the smaller count.

    Args:
        reference, candidate: positive figures of the same unit, one per fresh process group.

    Raises:
        ValueError: a side is empty or holds a figure that is not positive and finite.
    """
    if not reference or not candidate or not all(math.isfinite(x) and x > 0 for x in (*reference, *candidate)):
        raise ValueError("a ratio needs positive, finite figures on both sides")
    old, new = [math.log(x) for x in reference], [math.log(x) for x in candidate]
    difference = math.fsum(new) / len(new) - math.fsum(old) / len(old)
    ratio = ratio_of(difference)
    n = min(len(old), len(new))
    if n < 2:
        return Interval(estimate=ratio, low=None, high=None, confidence=confidence, n=n)
    if min(old) == max(old) and min(new) == max(new):
        return Interval(estimate=ratio, low=ratio, high=ratio, confidence=confidence, n=n)
    from scipy import special

    old_share, new_share = variance_of_mean(old), variance_of_mean(new)
    variance = old_share + new_share
    degrees = variance**2 / (old_share**2 / (len(old) - 1) + new_share**2 / (len(new) - 1))
    reach = float(special.stdtrit(degrees, 0.5 + confidence / 2)) * math.sqrt(variance)
    low, high = ratio_of(difference - reach), ratio_of(difference + reach)
    return Interval(estimate=ratio, low=low, high=high, confidence=confidence, n=n)
