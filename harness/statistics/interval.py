"""What every estimate of this package looks like."""

from __future__ import annotations

from harness.records import Value


class Interval(Value):
    """An estimate with its confidence interval. Without enough data there is an estimate but no interval."""

    estimate: float
    low: float | None
    high: float | None
    confidence: float
    n: int
    """Independent observations behind it: pairs of runs, or episodes."""

    def excludes(self, value: float) -> bool:
        """Whether `value` is shown to be wrong. A missing interval excludes nothing."""
        if self.low is None or self.high is None:
            return False
        return value < self.low or value > self.high

    def within(self, low: float, high: float) -> bool:
        """Whether the whole interval lies strictly between two bounds. A missing interval lies nowhere."""
        return self.low is not None and self.high is not None and low < self.low and self.high < high
