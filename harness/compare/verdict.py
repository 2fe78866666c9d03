"""What a comparison can end in. Whatever is not shown is not a pass."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from harness.errors import ExitCode
from harness.plan import RunKind
from harness.records import Record, Value
from harness.statistics.interval import Interval


class Verdict(StrEnum):
    """The end of one question about one subject."""

    PASS = "PASS"
    IMPROVED = "IMPROVED"
    REGRESSED = "REGRESSED"
    INCONCLUSIVE = "INCONCLUSIVE"
    INCOMPARABLE = "INCOMPARABLE"
    NO_BASELINE = "NO_BASELINE"
    STALE = "STALE"
    UNSTEADY = "UNSTEADY"
    FAILED = "FAILED"

    @property
    def exit_code(self) -> ExitCode:
        if self in (Verdict.PASS, Verdict.IMPROVED):
            return ExitCode.OK
        if self is Verdict.REGRESSED:
            return ExitCode.REGRESSED
        return ExitCode.FAILED if self is Verdict.FAILED else ExitCode.NOT_SHOWN


Question = Literal["run", "sharding", "fairness", "parity", "speed", "success", "control", "baseline", "published"]
EffectKind = Literal["ratio", "difference"]


class Alarm(Value):
    """A figure that the first stage of the gate calls worse."""

    subject: str
    metric: str
    kind: RunKind | None
    """Of the runs that gave it; None for an arm's success."""


class Alarms(Record):
    """`alarms.json`: what the first stage said, before anything was measured again."""

    baseline: str | None
    """Time of what was last done to the baseline; None without one."""
    seen: int
    """Ended runs and episodes at that moment; with more there, the gate is asked again."""
    alarms: list[Alarm]


class Confirmation(Value):
    """The second look at an alarm, from fresh processes or fresh episodes alone."""

    value: float
    """In the metric's unit."""
    effect: Interval | None
    n: int
    p_value: float
    """One-sided, of "not worse"."""
    reproduced: bool


class Judgement(Value):
    """One verdict and everything it stands on."""

    question: Question
    subject: str
    """Label of a cell, name of an arm, or a pair of either: `candidate vs reference`."""
    metric: str
    verdict: Verdict
    value: float | None = None
    """In the metric's unit (`harness.compare.metrics`); rates from 0 to 1."""
    reference: float | None = None
    effect: Interval | None = None
    effect_kind: EffectKind | None = None
    """Ratios are candidate over reference (speed: above 1 is faster), differences candidate minus reference."""
    smallest_detectable: float | None = None
    """As `effect_kind`: a ratio above 1 or an absolute difference, seen with 90 % probability."""
    false_alarm_rate: float | None = None
    n: int = 0
    """Pairs, processes or episodes of the subject that were used."""
    confirmation: Confirmation | None = None
    """Against a baseline: the second stage of what alarmed. The other fields are the first stage's."""
    reason: str
    """One sentence for the reader of the report."""


class Evidence(Value):
    """What a test of two sides found, whichever question it was for."""

    effect: Interval | None
    kind: EffectKind
    smallest_detectable: float | None
    false_alarm_rate: float
    n: int
    value: float | None = None
    reference: float | None = None


def judge_pair_of(
    question: Question, pair: tuple[str, str], metric: str, evidence: Evidence, outcome: tuple[Verdict, str]
) -> Judgement:
    """The judgement of a candidate against a reference.

    Args:
        pair: reference, candidate.
        outcome: verdict and its reason.
    """
    reference, candidate = pair
    verdict, reason = outcome
    return Judgement(
        question=question,
        subject=f"{candidate} vs {reference}",
        metric=metric,
        verdict=verdict,
        value=evidence.value,
        reference=evidence.reference,
        effect=evidence.effect,
        effect_kind=evidence.kind if evidence.effect else None,
        smallest_detectable=evidence.smallest_detectable,
        false_alarm_rate=evidence.false_alarm_rate,
        n=evidence.n,
        reason=reason,
    )
