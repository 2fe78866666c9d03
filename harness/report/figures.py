"""Numbers as people read them. What is missing is a dash, never a zero."""

from __future__ import annotations

import math
from collections.abc import Callable

from harness.compare.metrics import METRICS, Metric
from harness.compare.throughput import Finding, Speedup
from harness.compare.verdict import Judgement
from harness.plan import backend_key, model_key
from harness.statistics.interval import Interval

MISSING = "–"


def number(value: float | None, digits: int = 3) -> str:
    """`digits` significant digits, thousands apart by a narrow space: 1 234 or 0.0123."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}".replace(",", " ")


def milliseconds(seconds: float | None) -> str:
    return MISSING if seconds is None else number(seconds * 1e3)


def mib(size: float | None) -> str:
    """Bytes as MiB."""
    return MISSING if size is None else number(size / 2**20)


def ratio(interval: Interval | None) -> str:
    """`1.23× [1.10–1.38]`, or the estimate alone when there is no interval."""
    if interval is None:
        return MISSING
    estimate = f"{interval.estimate:.2f}×"
    if interval.low is None or interval.high is None:
        return f"{estimate} [–]"
    return f"{estimate} [{_bound(interval.low)}–{_bound(interval.high)}]"


def _bound(value: float) -> str:
    return f"{value:.2f}" if value < 100 else ">99"


def points(interval: Interval | None) -> str:
    """A difference of rates in percentage points: `−1.0 [−3.4, +1.3]`."""
    if interval is None:
        return MISSING
    if interval.low is None or interval.high is None:
        return f"{signed(interval.estimate)} [–]"
    return f"{signed(interval.estimate)} [{signed(interval.low)}, {signed(interval.high)}]"


def signed(share: float) -> str:
    text = f"{100 * share:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f}"


def effect(judgement: Judgement) -> str:
    """The judged effect with its interval, in its own kind."""
    unit = " pp" if judgement.effect and judgement.effect_kind != "ratio" else ""
    return f"{bare_effect(judgement)}{unit}"


def again_effect(judgement: Judgement) -> str:
    """The same of the second stage; empty where there was none."""
    again = judgement.confirmation
    return effect(judgement.model_copy(update={"effect": again.effect})) if again else ""


def bare_effect(judgement: Judgement) -> str:
    """As `effect`, without the unit of a difference."""
    return ratio(judgement.effect) if judgement.effect_kind == "ratio" else points(judgement.effect)


def measured(judgement: Judgement) -> str:
    """`96.5% against 93.8%`, or `301 ms against 300 ms`; empty where a judgement has no two values."""
    if judgement.value is None or judgement.reference is None:
        return ""
    if judgement.effect_kind == "difference":
        return f"{percent(judgement.value)}% against {percent(judgement.reference)}%"
    metric = METRICS.get(judgement.metric)
    if metric is None:
        return f"{number(judgement.value)} against {number(judgement.reference)}"
    return f"{shown_value(metric, judgement.value)} against {shown_value(metric, judgement.reference)}"


def shown_value(metric: Metric, value: float) -> str:
    """A figure with its unit as people read it: 301 ms, 941 MiB."""
    show, unit = _SHOWN.get(metric.unit, (number, metric.unit))
    return f"{show(value)} {unit}".rstrip()


_SHOWN: dict[str, tuple[Callable[[float], str], str]] = {"s": (milliseconds, "ms"), "B": (mib, "MiB")}
"""Unit of a metric → how it is printed."""


def detectable(judgement: Judgement) -> str:
    """The smallest effect the test would have found."""
    smallest = judgement.smallest_detectable
    if smallest is None:
        return MISSING
    if judgement.effect_kind != "ratio":
        return f"{100 * smallest:.1f} pp"
    return f"{smallest:.2f}×" if smallest < 100 else ">99×"


def alarm_rate(judgement: Judgement) -> str:
    return MISSING if judgement.false_alarm_rate is None else f"{100 * judgement.false_alarm_rate:.3g}%"


def speedup_text(speedup: Speedup | None) -> str:
    """The ratio with its interval. Cells that differ in more than the backend have none."""
    return MISSING if speedup is None or not speedup.comparable else ratio(speedup.speedup)


def speedup_cell(speedup: Speedup | None) -> str:
    """As `speedup_text`; bold only when a difference is shown."""
    text = speedup_text(speedup)
    shown = speedup is not None and speedup.pairs > 0 and speedup.finding in (Finding.FASTER, Finding.SLOWER)
    return f"**{text}**" if shown and text != MISSING else text


def pair(candidate: str, reference: str) -> str:
    """`pi0: fsdp2 vs zero3`."""
    if model_key(candidate) != model_key(reference):
        return f"{candidate} vs {reference}"
    return f"{model_key(candidate)}: {backend_key(candidate)} vs {backend_key(reference)}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
