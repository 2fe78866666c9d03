"""Would new processes, drawn as the baseline's were, show such a figure? Student's t prediction bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.records import Value
from harness.statistics.logscale import ratio_of


class Prediction(Value):
    """New processes against the raw values of a baseline, on the log scale."""

    ratio: float
    """Geometric mean of the new values over that of the baseline."""
    low: float | None
    """Two-sided prediction interval of the ratio, false-alarm rate alpha on each side; None below two values."""
    high: float | None
    p_larger: float
    """One-sided p value of "the new values are not larger"; 1.0 below two baseline values."""
    p_smaller: float
    log_sd: float | None
    """Standard deviation of the log of the baseline's values."""
    baseline_n: int
    candidate_n: int


def predict(baseline: Sequence[float], candidate: Sequence[float], alpha: float) -> Prediction:
    """Places the mean log of `candidate` in the t prediction distribution of the baseline's.

    t = (mean(candidate) - mean(baseline)) / (s · sqrt(1/k + 1/n)), n - 1 degrees of freedom (Hahn and Meeker,
    Statistical Intervals, 2nd ed., section 4.7). Its false-alarm rate holds for any number of baseline values,
    which a "mean ± 3 s" rule does not keep.

    Args:
        baseline: raw positive figures, one per fresh process group.
        candidate: the new figures, same unit.
        alpha: false-alarm rate of each side.

    Raises:
        ValueError: either side is empty or holds a figure that is not positive and finite.
    """
    from scipy import special

    if not baseline or not candidate or not all(math.isfinite(x) and x > 0 for x in (*baseline, *candidate)):
        raise ValueError("a prediction needs positive, finite figures on both sides")
    old, new = [math.log(x) for x in baseline], [math.log(x) for x in candidate]
    n, k = len(old), len(new)
    centre = math.fsum(old) / n
    shift = 0.0 if min(old) == max(old) == min(new) == max(new) else math.fsum(new) / k - centre
    if n < 2:
        return Prediction(
            ratio=ratio_of(shift), low=None, high=None, p_larger=1.0, p_smaller=1.0, log_sd=None,
            baseline_n=n, candidate_n=k,
        )  # fmt: skip
    sd = 0.0 if min(old) == max(old) else math.sqrt(math.fsum((x - centre) ** 2 for x in old) / (n - 1))
    scale = sd * math.sqrt(1 / k + 1 / n)
    bound = float(special.stdtrit(n - 1, 1 - alpha)) * scale
    if scale == 0.0:
        larger, smaller = float(shift <= 0), float(shift >= 0)
    else:
        larger, smaller = (float(special.stdtr(n - 1, side * shift / scale)) for side in (-1, 1))
    return Prediction(
        ratio=ratio_of(shift), low=ratio_of(-bound), high=ratio_of(bound), p_larger=larger, p_smaller=smaller,
        log_sd=sd, baseline_n=n, candidate_n=k,
    )  # fmt: skip
