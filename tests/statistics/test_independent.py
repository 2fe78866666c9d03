from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.statistics.independent import independent_ratio

FIGURES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6)


def test_welchs_interval_of_a_textbook_case() -> None:
    """By hand: logs 0, 2 against 3, 5: difference 3, standard error sqrt(2), 2 degrees of freedom, t = 4.302653."""
    found = independent_ratio([1.0, math.exp(2)], [math.exp(3), math.exp(5)])
    assert found.low is not None and found.high is not None
    assert math.log(found.estimate) == pytest.approx(3.0)
    assert math.log(found.high) == pytest.approx(3.0 + 4.302653 * math.sqrt(2), rel=1e-6)
    assert math.log(found.low) == pytest.approx(3.0 - 4.302653 * math.sqrt(2), rel=1e-6)


def test_unequal_spreads_have_welchs_degrees_of_freedom() -> None:
    """Logs 0, 0.2 (variance 0.02) against 1, 3, 5 (variance 4), by Welch and Satterthwaite's formula."""
    from scipy import special

    found = independent_ratio([1.0, math.exp(0.2)], [math.exp(x) for x in (1, 3, 5)])
    a, b = 0.02 / 2, 4 / 3
    degrees = (a + b) ** 2 / (a**2 / 1 + b**2 / 2)
    half = special.stdtrit(degrees, 0.975) * math.sqrt(a + b)
    assert found.low is not None and found.high is not None
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((2.9 - half, 2.9 + half), rel=1e-6)


def test_one_process_on_a_side_has_no_interval() -> None:
    found = independent_ratio([1.0, 1.1], [2.0])
    assert (found.low, found.high, found.n) == (None, None, 1)


def test_equal_processes_leave_no_doubt() -> None:
    found = independent_ratio([2.0, 2.0], [3.0, 3.0])
    assert (found.low, found.estimate, found.high) == pytest.approx((1.5, 1.5, 1.5))


@pytest.mark.parametrize("bad", [[], [0.0], [math.nan], [math.inf], [-1.0]])
def test_what_is_no_figure_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="positive, finite"):
        independent_ratio([1.0], bad)


@given(FIGURES, FIGURES, st.floats(1e-3, 1e3))
def test_turned_round_it_is_the_reciprocal_and_units_do_not_matter(
    old: list[float], new: list[float], unit: float
) -> None:
    found = independent_ratio(old, new)
    back = independent_ratio(new, old)
    scaled = independent_ratio([x * unit for x in old], [x * unit for x in new])
    assert found.estimate * back.estimate == pytest.approx(1.0, rel=1e-6)
    assert scaled.estimate == pytest.approx(found.estimate, rel=1e-6)
    if found.low is not None and found.high is not None:
        assert found.low <= found.estimate * (1 + 1e-9) and found.estimate <= found.high * (1 + 1e-9)
