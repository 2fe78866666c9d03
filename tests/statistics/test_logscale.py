from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.statistics.logscale import ratio_of
from harness.statistics.power import detectable_shift
from harness.statistics.prediction import predict
from harness.statistics.ratios import paired_ratio

figures = st.floats(1e-200, 1e200)
confidences = st.sampled_from([0.9, 0.99, 0.999, 0.999999])


@given(st.floats(allow_nan=False))
def test_every_log_has_a_positive_finite_ratio(log_ratio: float) -> None:
    assert 0 < ratio_of(log_ratio) < math.inf


@given(st.floats(-700, 700))
def test_within_the_range_it_is_the_exponential(log_ratio: float) -> None:
    assert ratio_of(log_ratio) == math.exp(log_ratio)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        ratio_of(math.nan)


@given(st.lists(st.tuples(figures, figures), min_size=2, max_size=3), confidences)
def test_few_wild_pairs_have_a_finite_interval(found: list[tuple[float, float]], confidence: float) -> None:
    interval = paired_ratio([a for a, _ in found], [b for _, b in found], confidence)
    assert interval.low is not None and interval.high is not None
    assert 0 < interval.low <= interval.high < math.inf


@given(st.lists(figures, min_size=2, max_size=3), figures, confidences)
def test_few_wild_values_have_a_finite_prediction(baseline: list[float], new: float, confidence: float) -> None:
    found = predict(baseline, [new], 1 - confidence)
    assert found.low is not None and found.high is not None and found.spread is not None
    assert 0 < found.low <= found.high < math.inf
    shift = detectable_shift(len(baseline), 1, found.spread, 1 - confidence)
    assert shift is not None and math.isfinite(shift)


def test_two_runs_far_apart_at_the_default_alarm_rate() -> None:
    """t(0.999, 1 degree of freedom) = 318.3, times log(16) / √2 · √1.5: exp(764) is beyond a float."""
    found = predict([1.0, 16.0], [2.0], alpha=0.001)
    assert found.high == math.exp(700)
    assert found.low == math.exp(-700)
