"""Figures of which some may be missing, and the scatter of a mean."""

from __future__ import annotations

from statistics import median, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.statistics.moments import of_all, variance_of_mean


@pytest.mark.parametrize("summary", [max, min, sum, median])
def test_a_missing_figure_is_no_figure_of_all(summary):
    assert of_all([3.0, 1.0, 2.0], summary) == summary([3.0, 1.0, 2.0])
    assert of_all([0.0], summary) == 0.0
    assert of_all([3.0, None], summary) is None
    assert of_all([], summary) is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20))
def test_variance_of_a_mean_is_that_of_a_value_over_their_number(values):
    assert variance_of_mean(values) == pytest.approx(variance(values) / len(values), rel=1e-9, abs=1e-9)
