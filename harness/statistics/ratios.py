"""Ratios of positive figures (step times, bytes), on the log scale, from pairs of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.statistics.interval import Interval
from harness.statistics.logscale import ratio_of
from harness.statistics.moments import variance_of_mean


def paired_ratio(reference: Sequence[float], candidate: Sequence[float], confidence: float = 0.95) -> Interval:
    """Geometric mean of `candidate / reference` over pairs, with Student's t interval of the mean log ratio.

    One pair has a ratio and no interval. As `scipy.stats.ttest_1samp(...).confidence_interval`.

    Args:
        reference: one positive figure per pair, any unit.
        candidate: the partner of each, same unit.

    Raises:
        ValueError: nothing to compare, unequal lengths, or a figure that is not positive and finite.
    """
    differences = log_ratios(reference, candidate)
    mean_low_high = mean_interval(differences, confidence)
    low, high = mean_low_high.low, mean_low_high.high
    return Interval(
        estimate=ratio_of(mean_low_high.estimate),
        low=None if low is None else ratio_of(low),
        high=None if high is None else ratio_of(high),
        confidence=confidence,
        n=len(differences),
    )


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean with Student's t interval; no interval below two values. Raises ValueError on none or on NaN."""
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"a mean needs finite values, got {list(values)}")
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Interval(estimate=mean, low=None, high=None, confidence=confidence, n=len(values))
    if max(values) == min(values):
        return Interval(estimate=mean, low=mean, high=mean, confidence=confidence, n=len(values))
    from scipy import special

    reach = float(special.stdtrit(len(values) - 1, 0.5 + confidence / 2)) * math.sqrt(variance_of_mean(values))
    return Interval(estimate=mean, low=mean - reach, high=mean + reach, confidence=confidence, n=len(values))


def difference_p(reference: Sequence[float], candidate: Sequence[float]) -> float:
    """Two-sided p value of "the true ratio is 1": paired t test of the logs, as `scipy.stats.ttest_1samp`.

    Fewer than two pairs show nothing: 1.0. Raises as `paired_ratio` does.
    """
    differences = log_ratios(reference, candidate)
    if len(differences) < 2:
        return 1.0
    if max(differences) == min(differences):
        return 1.0 if differences[0] == 0 else 0.0
    return 2 * _tail(differences, 0.0, above=math.fsum(differences) > 0)


def equivalence_p(reference: Sequence[float], candidate: Sequence[float], margin: float) -> float:
    """p value of "the true ratio lies outside 1/(1 + margin) … 1 + margin": small means shown equal.

    Two one-sided tests (Schuirmann 1987), as `statsmodels.stats.weightstats.ttost_paired`. Fewer than two pairs
    show nothing: 1.0.
    """
    differences = log_ratios(reference, candidate)
    bound = math.log1p(margin)
    if len(differences) < 2:
        return 1.0
    if max(differences) == min(differences):
        return 0.0 if abs(differences[0]) < bound else 1.0
    return max(_tail(differences, -bound, above=True), _tail(differences, bound, above=False))


def _tail(values: Sequence[float], expected: float, above: bool) -> float:
    """One-sided p value of Student's t test (`scipy.special.stdtr`) that the mean is above, or below, the expected."""
    from scipy import special

    t = (math.fsum(values) / len(values) - expected) / math.sqrt(variance_of_mean(values))
    return float(special.stdtr(len(values) - 1, -t if above else t))


def log_ratios(reference: Sequence[float], candidate: Sequence[float]) -> list[float]:
    """Natural log of `candidate / reference`, pair by pair. Raises as `paired_ratio` does."""
    if len(reference) != len(candidate) or not reference:
        raise ValueError(f"pairs need equal, non-zero counts, got {len(reference)} and {len(candidate)}")
    if not all(math.isfinite(value) and value > 0 for value in (*reference, *candidate)):
        raise ValueError("a ratio needs positive, finite figures")
    return [math.log(new) - math.log(old) for old, new in zip(reference, candidate, strict=True)]
