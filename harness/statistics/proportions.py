"""Success rates: one, two independent, and two paired episode by episode."""

from __future__ import annotations

import math

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
    """A rate with Wilson's score interval (Wilson 1927), `scipy.stats.binomtest(...).proportion_ci`.

    Raises:
        ValueError: no episodes, or more successes than episodes.
    """
    from scipy import stats

    _check(successes, n)
    bounds = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return Interval(estimate=successes / n, low=float(bounds.low), high=float(bounds.high), confidence=confidence, n=n)


def newcombe(reference: tuple[int, int], candidate: tuple[int, int], confidence: float = 0.95) -> Interval:
    """Candidate's rate minus reference's, for independent episodes; each is (successes, n).

    Newcombe's hybrid score interval (Newcombe 1998, method 10),
    `statsmodels.stats.proportion.confint_proportions_2indep(method="newcomb")`. `n` is the smaller count.
    """
    from statsmodels.stats.proportion import confint_proportions_2indep

    (old, old_n), (new, new_n) = reference, candidate
    _check(old, old_n)
    _check(new, new_n)
    low, high = confint_proportions_2indep(new, new_n, old, old_n, method="newcomb", alpha=1 - confidence)
    difference = new / new_n - old / old_n
    return Interval(
        estimate=difference,
        low=max(-1.0, min(float(low), difference)),
        high=min(1.0, max(float(high), difference)),
        confidence=confidence,
        n=min(old_n, new_n),
    )


def mcnemar_p(pairs: Pairs) -> float:
    """Two-sided p value of the exact McNemar test: only episodes on which the two differ speak (McNemar 1947).

    `statsmodels.stats.contingency_tables.mcnemar(exact=True)`. No differing episode gives 1.0.
    """
    from statsmodels.stats.contingency_tables import mcnemar

    if pairs.only_reference + pairs.only_candidate == 0:
        return 1.0
    table = [[pairs.both, pairs.only_reference], [pairs.only_candidate, pairs.neither]]
    return float(mcnemar(table, exact=True).pvalue)


def paired_difference(pairs: Pairs, confidence: float = 0.95) -> Interval:
    """Candidate's rate minus reference's on the same episodes.

    Wald's interval after half an observation is added to each of the four cells (Agresti and Min 2005,
    Statistics in Medicine 24: 729-740). The estimate stays the plain difference. Raises ValueError without pairs.
    """
    from scipy import special

    _check(0, pairs.n)
    lost, won, n = pairs.only_reference + 0.5, pairs.only_candidate + 0.5, pairs.n + 2.0
    centre = (won - lost) / n
    spread = float(special.ndtri(0.5 + confidence / 2)) * math.sqrt(won + lost - (won - lost) ** 2 / n) / n
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
