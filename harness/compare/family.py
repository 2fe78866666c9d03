"""Speedups as a family: what is shown after all of them were looked at, and one figure over several models."""

from __future__ import annotations

import math

from harness.compare.results import unique
from harness.compare.throughput import Finding, Speedup
from harness.plan import backend_key, model_key
from harness.records import Value
from harness.statistics.families import holm
from harness.statistics.interval import Interval
from harness.statistics.logscale import ratio_of
from harness.statistics.ratios import mean_interval
from harness.suite import Gate


class OverallSpeedup(Value):
    """One backend against another, over models."""

    reference: str
    """Backend keys."""
    candidate: str
    models: list[str]
    speedup: Interval
    """Geometric mean over the models; the interval is over repeats, each of which has every model."""


def settle(speedups: list[Speedup], gate: Gate) -> list[Speedup]:
    """Findings at the stated rate over the whole family (Holm): of difference, and of equality by itself."""
    unlike, alike = holm([s.p_value for s in speedups]), holm([s.equal_p for s in speedups])
    return [
        s.model_copy(
            update={
                "p_value": p,
                "equal_p": q,
                "equal": q < 1 - gate.confidence,
                "finding": _finding(s, p, q, 1 - gate.confidence),
            }
        )
        for s, p, q in zip(speedups, unlike, alike, strict=True)
    ]


def _finding(speedup: Speedup, unlike_p: float, alike_p: float, rate: float) -> Finding:
    if speedup.speedup is None or (unlike_p >= rate and alike_p >= rate):
        return Finding.NOT_SHOWN
    if alike_p < rate:
        return Finding.EQUAL
    return Finding.FASTER if speedup.speedup.estimate > 1 else Finding.SLOWER


def overall_speedups(speedups: list[Speedup], confidence: float) -> list[OverallSpeedup]:
    """Geometric means over models, for every pair of backends that at least two models have in fair pairs.

    The geometric mean is the one mean of ratios that does not depend on which side is the reference (Fleming and
    Wallace 1986). A repeat counts when every model has a steady pair in it, so that models weigh alike.
    """
    found = []
    keys = unique((backend_key(s.reference), backend_key(s.candidate)) for s in speedups)
    for reference, candidate in keys:
        like = [s for s in speedups if (backend_key(s.reference), backend_key(s.candidate)) == (reference, candidate)]
        like = [s for s in like if s.comparable and s.by_repeat]
        common = set.intersection(*(set(s.by_repeat) for s in like)) if len(like) > 1 else set()
        if not common:
            continue
        logs = [math.fsum(math.log(s.by_repeat[repeat]) for s in like) / len(like) for repeat in sorted(common)]
        mean = mean_interval(logs, confidence)
        found.append(
            OverallSpeedup(
                reference=reference,
                candidate=candidate,
                models=[model_key(s.candidate) for s in like],
                speedup=Interval(
                    estimate=ratio_of(mean.estimate),
                    low=None if mean.low is None else ratio_of(mean.low),
                    high=None if mean.high is None else ratio_of(mean.high),
                    confidence=confidence,
                    n=mean.n,
                ),
            )
        )
    return found
