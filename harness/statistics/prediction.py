"""Would new processes, drawn as the baseline's were, show such a figure? Student's t prediction bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.records import Value
from harness.statistics.logscale import ratio_of

FEW_DEGREES = 10
"""Below so many degrees of freedom of its own, a baseline's spread is helped by that of its like. At a gate's rates,
1e-4 and less for a single figure, Student's critical value is 13 at 4 degrees of freedom and 5.7 at 10."""


class Spread(Value):
    """Run-to-run noise: standard deviation of the log of one process's figure."""

    log_sd: float
    degrees: int
    """Degrees of freedom behind it."""


def own_spread(values: Sequence[float]) -> Spread | None:
    """Of one baseline's positive figures; None below two."""
    logs = [math.log(x) for x in values]
    if len(logs) < 2:
        return None
    centre = math.fsum(logs) / len(logs)
    squares = 0.0 if min(logs) == max(logs) else math.fsum((x - centre) ** 2 for x in logs)
    return Spread(log_sd=math.sqrt(squares / (len(logs) - 1)), degrees=len(logs) - 1)


def pooled_spread(groups: Sequence[Sequence[float]], correlation: float = 0.0) -> Spread | None:
    """Within-group spread over several baselines (the mean square within of a one-way analysis of variance).

    It holds where processes of all groups vary alike on the log scale. None when no group has two figures.

    Args:
        correlation: of two groups' processes at the same place. Variances of m such groups are correlated by its
            square, so that they hold 1 / (1 + (m - 1) · correlation²) of the degrees of freedom (Satterthwaite).
    """
    spreads = [found for group in groups if (found := own_spread(group))]
    degrees = sum(spread.degrees for spread in spreads)
    if degrees == 0:
        return None
    squares = math.fsum(spread.degrees * spread.log_sd**2 for spread in spreads)
    shared = 1 + (len(spreads) - 1) * correlation**2
    return Spread(log_sd=math.sqrt(squares / degrees), degrees=max(1, int(degrees / shared)))


def spread_for(values: Sequence[float], groups: Sequence[Sequence[float]], correlation: float = 0.0) -> Spread | None:
    """The spread a verdict on `values` stands on.

    Its own from `FEW_DEGREES` on. Below, the degrees of freedom of all groups of its like, with their pooled spread
    or its own, whichever is larger: two or three figures that happen to agree must not make a sharp bound.
    """
    own, pooled = own_spread(values), pooled_spread(groups, correlation)
    if pooled is None or (own is not None and (own.degrees >= FEW_DEGREES or own.degrees >= pooled.degrees)):
        return own
    return Spread(log_sd=max(pooled.log_sd, own.log_sd if own else 0.0), degrees=pooled.degrees)


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
    log_reach: float
    """The true log ratio may be larger than the measured one by so much (Student's one-sided 90 % bound); 0 without
    a spread."""
    spread: Spread | None
    """What the bound stands on; None below two values without help from their like."""
    baseline_n: int
    candidate_n: int


def predict(
    baseline: Sequence[float], candidate: Sequence[float], alpha: float, spread: Spread | None = None
) -> Prediction:
    """Places the mean log of `candidate` in the t prediction distribution of the baseline's.

    t = (mean(candidate) - mean(baseline)) / (s · sqrt(1/k + 1/n)) with the spread's degrees of freedom, n - 1 for
    the baseline's own (Hahn and Meeker, Statistical Intervals, 2nd ed., section 4.7). Its false-alarm rate holds for
    any number of baseline values, which a "mean ± 3 s" rule does not keep.

    Args:
        baseline: raw positive figures, one per fresh process group.
        candidate: the new figures, same unit.
        alpha: false-alarm rate of each side.
        spread: from `spread_for`; None takes the baseline's own.

    Raises:
        ValueError: either side is empty or holds a figure that is not positive and finite.
    """
    from scipy import special

    if not baseline or not candidate or not all(math.isfinite(x) and x > 0 for x in (*baseline, *candidate)):
        raise ValueError("a prediction needs positive, finite figures on both sides")
    old, new = [math.log(x) for x in baseline], [math.log(x) for x in candidate]
    n, k = len(old), len(new)
    shift = 0.0 if min(old) == max(old) == min(new) == max(new) else math.fsum(new) / k - math.fsum(old) / n
    spread = spread or own_spread(baseline)
    if spread is None:
        return Prediction(
            ratio=ratio_of(shift), low=None, high=None, p_larger=1.0, p_smaller=1.0, log_reach=0.0,
            spread=None, baseline_n=n, candidate_n=k,
        )  # fmt: skip
    scale = spread.log_sd * math.sqrt(1 / k + 1 / n)
    bound = float(special.stdtrit(spread.degrees, 1 - alpha)) * scale
    if scale == 0.0:
        larger, smaller = float(shift <= 0), float(shift >= 0)
    else:
        larger, smaller = (float(special.stdtr(spread.degrees, side * shift / scale)) for side in (-1, 1))
    return Prediction(
        ratio=ratio_of(shift), low=ratio_of(-bound), high=ratio_of(bound), p_larger=larger, p_smaller=smaller,
        log_reach=float(special.stdtrit(spread.degrees, 0.9)) * scale, spread=spread, baseline_n=n, candidate_n=k,
    )  # fmt: skip
