from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.statistics.ratios import equivalence_p, log_ratios, mean_interval, paired_ratio

seconds = st.floats(1e-3, 1e3)
pairs = st.lists(st.tuples(seconds, seconds), min_size=2, max_size=12)


def sides(found: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in found], [b for _, b in found]


def test_the_interval_is_students_on_the_log_scale() -> None:
    # mean of log 1.1, log 1.2, log 1.3 and t(0.975, 2) = 4.302653, by hand
    logs = [math.log(x) for x in (1.1, 1.2, 1.3)]
    mean = sum(logs) / 3
    half = 4.302653 * math.sqrt(sum((x - mean) ** 2 for x in logs) / 2) / math.sqrt(3)
    found = paired_ratio([1.0, 1.0, 1.0], [1.1, 1.2, 1.3])
    assert found.estimate == pytest.approx(math.exp(mean))
    assert found.low == pytest.approx(math.exp(mean - half), rel=1e-6)
    assert found.high == pytest.approx(math.exp(mean + half), rel=1e-6)


def test_one_pair_has_a_ratio_and_no_interval() -> None:
    found = paired_ratio([2.0], [1.0])
    assert (found.estimate, found.low, found.high, found.n) == (0.5, None, None, 1)
    assert not found.excludes(1.0)
    assert not found.within(0.0, 9.0)


@settings(max_examples=40, deadline=None)
@given(pairs)
def test_exchanging_the_sides_inverts_the_ratio(found: list[tuple[float, float]]) -> None:
    a, b = sides(found)
    there, back = paired_ratio(a, b), paired_ratio(b, a)
    assert there.low is not None and back.high is not None
    assert there.estimate == pytest.approx(1 / back.estimate)
    assert math.log(there.low) == pytest.approx(-math.log(back.high), abs=1e-8)


@settings(max_examples=40, deadline=None)
@given(pairs, st.floats(1e-3, 1e3))
def test_units_do_not_matter(found: list[tuple[float, float]], factor: float) -> None:
    a, b = sides(found)
    plain, scaled = paired_ratio(a, b), paired_ratio([x * factor for x in a], [x * factor for x in b])
    assert plain.low is not None and scaled.low is not None
    assert scaled.estimate == pytest.approx(plain.estimate, rel=1e-9)
    assert math.log(scaled.low) == pytest.approx(math.log(plain.low), abs=1e-8)


@settings(max_examples=40, deadline=None)
@given(pairs, st.randoms())
def test_the_order_of_pairs_does_not_matter(found: list[tuple[float, float]], random: object) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert paired_ratio(*sides(shuffled)).estimate == pytest.approx(paired_ratio(*sides(found)).estimate)


@settings(max_examples=30, deadline=None)
@given(pairs)
def test_more_confidence_is_a_wider_interval(found: list[tuple[float, float]]) -> None:
    narrow, wide = (paired_ratio(*sides(found), confidence=c) for c in (0.9, 0.99))
    assert narrow.low is not None and wide.low is not None
    assert wide.low <= narrow.low * (1 + 1e-12)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_figures_that_have_no_ratio_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        paired_ratio([1.0, bad], [1.0, 1.0])
    with pytest.raises(ValueError, match="positive"):
        log_ratios([1.0, 1.0], [bad, 1.0])


def test_unequal_or_no_pairs_are_refused() -> None:
    for a, b in (([], []), ([1.0], [1.0, 2.0])):
        with pytest.raises(ValueError, match="counts"):
            paired_ratio(a, b)


def test_equality_must_be_shown() -> None:
    same = [1.0, 1.001, 0.999, 1.0005]
    assert equivalence_p([1.0] * 4, same, 0.03) < 0.001
    noisy = [0.8, 1.25, 0.9, 1.1]
    assert equivalence_p([1.0] * 4, noisy, 0.03) > 0.05
    assert equivalence_p([1.0], [1.0], 0.03) == 1.0


def test_equality_of_identical_runs() -> None:
    assert equivalence_p([1.0, 1.0], [1.0, 1.0], 0.03) == 0.0
    assert equivalence_p([1.0, 1.0], [1.1, 1.1], 0.03) == 1.0


def test_a_mean_of_equal_values_is_exact_and_of_nan_refused() -> None:
    found = mean_interval([0.1, 0.1, 0.1])
    assert found.low == found.high == found.estimate == pytest.approx(0.1)
    with pytest.raises(ValueError, match="finite"):
        mean_interval([0.1, math.nan])
