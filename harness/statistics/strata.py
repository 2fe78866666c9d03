"""Success rates of independent episodes, task by task: a hard task is compared with itself only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.records import Value
from harness.statistics.interval import Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]


class Stratum(Value):
    """Two sides of one task (or task suite): successes and episodes."""

    reference: int
    reference_n: int
    candidate: int
    candidate_n: int


def stratified_p(strata: Sequence[Stratum], worse: bool) -> float:
    """One-sided p value that the candidate's odds of success are lower (`worse`) or higher, over all strata.

    The exact form of the Cochran–Mantel–Haenszel test (Mehta, Patel and Gray 1985, JASA 80: 969-973): with every
    stratum's margins given, the candidate's successes are hypergeometric, and their sum has the convolution of
    these distributions (as `scipy.stats.hypergeom`; `numpy.convolve`). One stratum is Fisher's exact test.

    Raises:
        ValueError: no stratum, or one without episodes on either side.
    """
    import numpy as np

    _check(strata)
    total, lowest = np.ones(1), 0
    for s in strata:
        successes, n = s.reference + s.candidate, s.reference_n + s.candidate_n
        first, last = max(0, successes - s.reference_n), min(successes, s.candidate_n)
        total = np.convolve(total, _hypergeometric(first, last, n, successes, s.candidate_n))
        lowest += first
    at = sum(s.candidate for s in strata) - lowest
    tail = total[: at + 1] if worse else total[at:]
    return min(1.0, float(tail.sum()))


def _hypergeometric(first: int, last: int, n: int, successes: int, drawn: int) -> FloatArray:
    """Probabilities of `first` to `last` successes among so many drawn from n without replacement."""
    import numpy as np
    from scipy import special

    def log_ways(whole: Any, part: Any) -> Any:
        return special.gammaln(whole + 1) - special.gammaln(part + 1) - special.gammaln(whole - part + 1)

    k = np.arange(first, last + 1)
    found: FloatArray = np.exp(log_ways(successes, k) + log_ways(n - successes, drawn - k) - log_ways(n, drawn))
    return found


def two_sided_p(strata: Sequence[Stratum]) -> float:
    """Twice the smaller one-sided `stratified_p`, at most 1."""
    return min(1.0, 2 * min(stratified_p(strata, worse) for worse in (True, False)))


def mean_difference(strata: Sequence[Stratum], confidence: float = 0.95) -> Interval:
    """Candidate's rate minus reference's, averaged over the strata with equal weight; LIBERO's averages are such.

    Wald's interval with one success and one failure added to each side of each stratum (Agresti and Caffo 2000,
    The American Statistician 54: 280-288); strata are independent, so their variances add. `n` is the smaller
    side's episodes. Raises as `stratified_p`.
    """
    from scipy import special

    centre, error = _adjusted(strata)
    reach = float(special.ndtri(0.5 + confidence / 2)) * error
    estimate = math.fsum(s.candidate / s.candidate_n - s.reference / s.reference_n for s in strata) / len(strata)
    return Interval(
        estimate=estimate,
        low=max(-1.0, min(centre - reach, estimate)),
        high=min(1.0, max(centre + reach, estimate)),
        confidence=confidence,
        n=min(sum(s.reference_n for s in strata), sum(s.candidate_n for s in strata)),
    )


def equivalent_p(strata: Sequence[Stratum], margin: float) -> float:
    """p value of "the mean rates differ by `margin` or more": small means shown equivalent.

    Two one-sided tests (Schuirmann 1987) with the standard error of `mean_difference`.
    """
    from scipy import special

    centre, error = _adjusted(strata)
    return float(max(special.ndtr((centre - margin) / error), special.ndtr(-(centre + margin) / error)))


def common_odds_ratio(strata: Sequence[Stratum], confidence: float = 0.95) -> Interval | None:
    """Mantel and Haenszel's odds ratio of success, candidate over reference, with the interval of Robins, Breslow
    and Greenland: `statsmodels.stats.contingency_tables.StratifiedTable`. None where complete separation (or no
    success, or no failure at all) leaves it without bounds."""
    import numpy as np
    from statsmodels.stats.contingency_tables import StratifiedTable

    _check(strata)
    tables = [
        np.array([[s.candidate, s.candidate_n - s.candidate], [s.reference, s.reference_n - s.reference]], dtype=float)
        for s in strata
    ]
    with np.errstate(all="ignore"):
        found = StratifiedTable(tables)
        low, high = found.oddsratio_pooled_confint(alpha=1 - confidence)
        ratio = float(found.oddsratio_pooled)
    if not all(math.isfinite(x) and x > 0 for x in (ratio, float(low), float(high))):
        return None
    n = min(sum(s.reference_n for s in strata), sum(s.candidate_n for s in strata))
    return Interval(estimate=ratio, low=float(low), high=float(high), confidence=confidence, n=n)


def _adjusted(strata: Sequence[Stratum]) -> tuple[float, float]:
    """Mean difference of the adjusted rates and its standard error."""
    _check(strata)
    centre, variance = 0.0, 0.0
    for s in strata:
        old_n, new_n = s.reference_n + 2, s.candidate_n + 2
        old, new = (s.reference + 1) / old_n, (s.candidate + 1) / new_n
        centre += new - old
        variance += old * (1 - old) / old_n + new * (1 - new) / new_n
    return centre / len(strata), math.sqrt(variance) / len(strata)


def _check(strata: Sequence[Stratum]) -> None:
    if not strata:
        raise ValueError("a stratified comparison needs a stratum")
    for s in strata:
        if not (0 <= s.reference <= s.reference_n and 0 <= s.candidate <= s.candidate_n):
            raise ValueError(f"more successes than episodes: {s}")
        if s.reference_n < 1 or s.candidate_n < 1:
            raise ValueError(f"a stratum needs episodes on both sides: {s}")
