"""The two questions asked of a baseline: has a figure moved, and has success? Each can be asked again of fresh data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.baseline import TaskCount
from harness.compare.metrics import Metric, smallest_effect
from harness.compare.verdict import Judgement, Verdict
from harness.statistics.interval import Interval
from harness.statistics.power import detectable_rate_difference, detectable_shift
from harness.statistics.prediction import Spread, predict
from harness.statistics.proportions import newcombe
from harness.statistics.strata import Stratum, stratified_p
from harness.suite import Gate


@dataclass(frozen=True)
class Answer:
    """What one look says; the verdict waits for the whole family."""

    draft: Judgement
    p_worse: float
    p_better: float
    matters: bool
    """The change may well be as large as the smallest that matters: its far bound is. A cut at the measured value
    itself would miss half of the changes of just that size."""
    blind: bool
    """A change that matters could have stayed unseen."""


@dataclass(frozen=True)
class MetricQuestion:
    """Has a metric of a cell moved?

    Attributes:
        old: the baseline's raw positive figures.
        spread: run-to-run noise that the bound stands on.
    """

    label: str
    metric: Metric
    old: Sequence[float]
    spread: Spread | None
    gate: Gate

    def ask(self, new: Sequence[float], alpha: float) -> Answer:
        """Of positive figures, one per fresh process group, at a false-alarm rate of one side.

        A figure that like runs reproduce to the byte needs no test.
        """
        metric, old = self.metric, self.old
        prediction = predict(old, new, alpha, self.spread)
        centre = statistics.geometric_mean(old)
        needed = 1 + max(smallest_effect(metric, self.gate), metric.floor / centre)
        larger, smaller = prediction.p_larger, prediction.p_smaller
        detectable = detectable_shift(len(old), len(new), prediction.spread, alpha)
        if metric.exact:
            larger, smaller, detectable = float(prediction.ratio <= 1), float(prediction.ratio >= 1), needed
        low, high = prediction.low, prediction.high
        draft = Judgement(
            question="baseline",
            subject=self.label,
            metric=metric.name,
            verdict=Verdict.INCONCLUSIVE,
            value=statistics.geometric_mean(new),
            reference=centre,
            effect=Interval(
                estimate=prediction.ratio,
                low=None if low is None else prediction.ratio * low,
                high=None if high is None else prediction.ratio * high,
                confidence=1 - 2 * alpha,
                n=len(new),
            ),
            effect_kind="ratio",
            smallest_detectable=None if detectable is None else max(detectable, needed),
            false_alarm_rate=self.gate.false_alarm_rate,
            n=len(new),
            reason=f"{_count(len(new), 'process')} against {len(old)}",
        )
        worse, better = (larger, smaller) if metric.better == "lower" else (smaller, larger)
        return Answer(
            draft=draft,
            p_worse=worse,
            p_better=better,
            matters=abs(math.log(prediction.ratio)) + prediction.log_reach >= math.log(needed),
            blind=detectable is None or detectable > needed,
        )


@dataclass(frozen=True)
class SuccessQuestion:
    """Has an arm's success in a task suite moved? Independent episodes, task by task."""

    arm: str
    task_suite: str
    old: Sequence[TaskCount]
    gate: Gate

    @property
    def metric(self) -> str:
        return f"success_rate {self.task_suite}"

    def overlaps(self, new: Sequence[TaskCount]) -> bool:
        return bool(self._strata(new))

    def ask(self, new: Sequence[TaskCount], alpha: float) -> Answer:
        """Of the counts of the same tasks, at a false-alarm rate of one side. At least one task is in both."""
        strata = self._strata(new)
        before = sum(s.reference for s in strata), sum(s.reference_n for s in strata)
        now = sum(s.candidate for s in strata), sum(s.candidate_n for s in strata)
        difference = newcombe(before, now, self.gate.confidence)
        detectable = detectable_rate_difference(before[0] / before[1], before[1], now[1], alpha)
        smallest = self.gate.smallest_effect.success_rate
        draft = Judgement(
            question="baseline",
            subject=self.arm,
            metric=self.metric,
            verdict=Verdict.INCONCLUSIVE,
            value=now[0] / now[1],
            reference=before[0] / before[1],
            effect=difference,
            effect_kind="difference",
            smallest_detectable=None if detectable is None else max(detectable, smallest),
            false_alarm_rate=self.gate.false_alarm_rate,
            n=now[1],
            reason=f"{_count(now[1], 'episode')} against {before[1]} in {_count(len(strata), 'task')}",
        )
        return Answer(
            draft=draft,
            p_worse=stratified_p(strata, worse=True),
            p_better=stratified_p(strata, worse=False),
            matters=not difference.within(-smallest, smallest),
            blind=detectable is None or detectable > smallest,
        )

    def _strata(self, new: Sequence[TaskCount]) -> list[Stratum]:
        old = {c.task: c for c in self.old if c.task_suite == self.task_suite and c.valid}
        return [
            Stratum(
                reference=old[c.task].successes,
                reference_n=old[c.task].valid,
                candidate=c.successes,
                candidate_n=c.valid,
            )
            for c in new
            if c.task_suite == self.task_suite and c.task in old and c.valid
        ]


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
