"""Success rates: one, two independent, and two paired episode by episode."""

from __future__ import annotations

import math
from functools import lru_cache

from harness.records import Value
from harness.statistics.interval import Interval


class Pairs(Value):
    """Outcomes of two policies on the same episodes."""

    both: int
    only_reference: int
    only_candidate: int
    neither: int

    @property
    def n(self) -> int:
        return self.both + self.only_reference + self.only_candidate + self.neither


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """A rate with Wilson's score interval (Wilson 1927), as `scipy.stats.binomtest(...).proportion_ci` gives it.

    Raises:
        ValueError: no episodes, or more successes than episodes.
    """
    _check(successes, n)
    z, rate = _normal_quantile(0.5 + confidence / 2), successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    reach = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if successes == 0 else centre - reach
    high = 1.0 if successes == n else centre + reach
    return Interval(estimate=rate, low=low, high=high, confidence=confidence, n=n)


def newcombe(reference: tuple[int, int], candidate: tuple[int, int], confidence: float = 0.95) -> Interval:
    """Candidate's rate minus reference's, for independent episodes; each is (successes, n).

    Newcombe's hybrid score interval (Newcombe 1998, method 10): each side's Wilson bounds, as
    `statsmodels.stats.proportion.confint_proportions_2indep(method="newcomb")`. `n` is the smaller count.
    """
    old, new = wilson(*reference, confidence), wilson(*candidate, confidence)
    assert old.low is not None and old.high is not None and new.low is not None and new.high is not None
    difference = new.estimate - old.estimate
    low = difference - math.hypot(new.estimate - new.low, old.high - old.estimate)
    high = difference + math.hypot(new.high - new.estimate, old.estimate - old.low)
    return Interval(estimate=difference, low=low, high=high, confidence=confidence, n=min(old.n, new.n))


def mcnemar_p(pairs: Pairs) -> float:
    """Two-sided p value of the exact McNemar test: only episodes on which the two differ speak (McNemar 1947).

    The binomial tail (`scipy.special.bdtr`), as `statsmodels.stats.contingency_tables.mcnemar(exact=True)`. No
    differing episode gives 1.0.
    """
    from scipy import special

    fewer, differing = min(pairs.only_reference, pairs.only_candidate), pairs.only_reference + pairs.only_candidate
    return min(1.0, 2 * float(special.bdtr(fewer, differing, 0.5)))


def paired_difference(pairs: Pairs, confidence: float = 0.95) -> Interval:
    """Candidate's rate minus reference's on the same episodes.

    Wald's interval after half an observation is added to each of the four cells (Agresti and Min 2005,
    Statistics in Medicine 24: 729-740). The estimate stays the plain difference. Raises ValueError without pairs.
    """
    _check(0, pairs.n)
    lost, won, n = pairs.only_reference + 0.5, pairs.only_candidate + 0.5, pairs.n + 2.0
    centre = (won - lost) / n
    spread = _normal_quantile(0.5 + confidence / 2) * math.sqrt(won + lost - (won - lost) ** 2 / n) / n
    difference = (pairs.only_candidate - pairs.only_reference) / pairs.n
    return Interval(
        estimate=difference,
        low=max(-1.0, min(centre - spread, difference)),
        high=min(1.0, max(centre + spread, difference)),
        confidence=confidence,
        n=pairs.n,
    )


def noninferior(difference: Interval, margin: float) -> bool:
    """Whether a difference of rates is shown to be no worse than `-margin`: its lower bound lies above.

    With a two-sided 95 % interval the one-sided error rate is 2.5 %.
    """
    return difference.low is not None and difference.low > -margin


def _check(successes: int, n: int) -> None:
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"a rate needs episodes, got {successes} successes of {n}")


@lru_cache(maxsize=32)
def _normal_quantile(share: float) -> float:
    from scipy import special

    return float(special.ndtri(share))
