"""What a test can see before it is run. Quick to import; the plan uses it."""

from __future__ import annotations

import math
from collections.abc import Callable

from harness.statistics.logscale import ratio_of
from harness.statistics.prediction import Spread

POWER = 0.9
"""Probability of seeing an effect of the size called detectable."""
FAR = 100.0
"""Critical values of t beyond which only the scatter of the sample's own standard deviation counts."""


def smallest_detectable_log_ratio(pairs: int, log_sd: float, alpha: float, power: float = POWER) -> float:
    """Smallest true |log ratio| that a two-sided paired t test at `alpha` finds with probability `power`.

    Noncentral t distribution, `scipy.special.nctdtrinc`.

    Args:
        log_sd: standard deviation of one pair's log ratio.

    Returns:
        Infinity below two pairs: no t test exists, whatever the effect.
    """
    if pairs < 2:
        return math.inf
    return _noncentrality(pairs - 1, alpha / 2, power) * log_sd / math.sqrt(pairs)


def detectable_shift(
    baseline: int, candidate: int, spread: Spread | None, alpha: float, power: float = POWER
) -> float | None:
    """Smallest true ratio above 1 that the one-sided t prediction bound finds with probability `power`.

    Args:
        baseline, candidate: numbers of processes.
        spread: what the bound stands on.

    Returns:
        None without a spread or without a process on either side.
    """
    if spread is None or baseline < 1 or candidate < 1:
        return None
    scale = spread.log_sd * math.sqrt(1 / baseline + 1 / candidate)
    return ratio_of(_noncentrality(spread.degrees, alpha, power) * scale)


def processes_needed(
    ratio: float, log_sd: float, alpha: float, baseline: int | None = None, power: float = POWER, most: int = 1000
) -> int | None:
    """Fresh processes a night after which `detectable_shift` has come down to `ratio`; None beyond `most`.

    Args:
        log_sd: standard deviation of the log of one process's figure.
        baseline: processes of the baseline; None takes as many as the night's.
    """

    def enough(count: int) -> bool:
        old = count if baseline is None else baseline
        found = detectable_shift(old, count, Spread(log_sd=log_sd, degrees=old - 1), alpha, power) if old > 1 else None
        return found is not None and found <= ratio

    return _first(enough, 1, most)


def detectable_rate_difference(
    rate: float, reference_n: int, candidate_n: int, alpha: float, power: float = POWER
) -> float | None:
    """Smallest drop of a success rate that a one-sided test of two independent samples finds.

    Normal approximation with each side's own variance and the continuity correction, as the exact test has it (Fleiss,
    Levin and Paik 2003, sections 4.2 and 4.4). The rate is kept a Laplace half-episode off 0 and 1. None without
    episodes; 1 where not even a fall to nothing is found.
    """
    from scipy import special

    if reference_n < 1 or candidate_n < 1:
        return None
    edge = 0.5 / (min(reference_n, candidate_n) + 1)
    before = min(max(rate, edge), 1 - edge)
    alarm, seen = float(special.ndtri(1 - alpha)), float(special.ndtri(power))
    shares = 1 / reference_n + 1 / candidate_n

    def lacking(drop: float) -> float:
        """How far this drop lies below what is found with that power."""
        after = before - drop
        pooled = (reference_n * before + candidate_n * after) / (reference_n + candidate_n)
        alike = math.sqrt(pooled * (1 - pooled) * shares)
        apart = math.sqrt(before * (1 - before) / reference_n + after * (1 - after) / candidate_n)
        return alarm * alike + seen * apart + shares / 2 - drop

    if lacking(before) > 0:
        return 1.0
    low, high = 0.0, before
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if lacking(middle) > 0 else (low, middle)
    return high


def detectable_paired_difference(
    differing_share: float, pairs: int, alpha: float, power: float = POWER
) -> float | None:
    """Smallest difference of two success rates that a one-sided test on the same episodes finds.

    First-order normal approximation (Connor 1987): only the share of episodes on which the two differ makes noise.
    It is kept at least one half-episode. None without pairs; at most 1.
    """
    from scipy import special

    if pairs < 1:
        return None
    spread = math.sqrt(max(differing_share, 0.5 / pairs) / pairs)
    return min(1.0, float(special.ndtri(1 - alpha) + special.ndtri(power)) * spread)


def smallest_p_mcnemar(pairs: int) -> float:
    """The smallest two-sided p value exact McNemar can reach: every pair differs, in the same direction."""
    return min(1.0, 2.0 * 0.5**pairs)


def _noncentrality(degrees: int, tail: float, power: float) -> float:
    """Shift, in standard errors, at which a one-sided t test of size `tail` has probability `power`."""
    from scipy import special

    critical = float(special.stdtrit(degrees, 1 - tail))
    if critical > FAR:
        # Here the mean's own noise is nothing beside the shift, and `nctdtrinc` may never return.
        return critical * math.sqrt(float(special.chdtri(degrees, 1 - power)) / degrees)
    return float(special.nctdtrinc(degrees, 1 - power, critical))


def _first(enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """Smallest whole number in [low, high] from which on `enough` holds, by bisection."""
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
