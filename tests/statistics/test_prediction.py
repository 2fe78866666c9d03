from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.statistics.prediction import FEW_DEGREES, own_spread, pooled_spread, predict, spread_for

figures = st.lists(st.floats(0.1, 10), min_size=2, max_size=12)


@settings(max_examples=40, deadline=None)
@given(figures, figures, st.floats(1e-3, 1e6))
def test_units_do_not_matter(old: list[float], new: list[float], factor: float) -> None:
    plain = predict(old, new, 0.01)
    scaled = predict([x * factor for x in old], [x * factor for x in new], 0.01)
    assert scaled.ratio == pytest.approx(plain.ratio, rel=1e-6)
    if plain.spread and plain.spread.log_sd > 1e-6:
        assert scaled.p_larger == pytest.approx(plain.p_larger, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(figures, figures)
def test_the_two_sides_complement_each_other(old: list[float], new: list[float]) -> None:
    found = predict(old, new, 0.01)
    if found.spread and found.spread.log_sd:
        assert found.p_larger + found.p_smaller == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(figures, st.floats(0.1, 10), st.floats(1.01, 3))
def test_a_worse_figure_is_never_less_suspicious(old: list[float], new: float, factor: float) -> None:
    assert predict(old, [new * factor], 0.01).p_larger <= predict(old, [new], 0.01).p_larger + 1e-12


def test_one_baseline_value_shows_nothing() -> None:
    found = predict([1.0], [99.0], 0.01)
    assert (found.low, found.high, found.p_larger, found.p_smaller) == (None, None, 1.0, 1.0)


def test_equal_values_leave_no_noise() -> None:
    same = predict([3.0] * 4, [3.0, 3.0], 0.01)
    assert (same.p_larger, same.p_smaller, same.ratio) == (1.0, 1.0, 1.0)
    assert predict([3.0] * 4, [3.1], 0.01).p_larger == 0.0
    assert predict([3.0] * 4, [2.9], 0.01).p_smaller == 0.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_figures_without_a_logarithm_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        predict([1.0, bad], [1.0], 0.01)
    with pytest.raises(ValueError, match="positive"):
        predict([1.0, 1.0], [bad], 0.01)


@pytest.mark.parametrize(("n", "k"), [(5, 1), (20, 3)])
def test_the_false_alarm_rate_is_kept(n: int, k: int) -> None:
    rng = np.random.default_rng(1)
    alarms = 0
    trials = 4000
    for _ in range(trials):
        values = np.exp(rng.normal(0, 0.01, n + k)).tolist()
        alarms += predict(values[:n], values[n:], 0.05).p_larger < 0.05
    assert alarms / trials == pytest.approx(0.05, abs=0.011)  # three standard errors


def test_pooling_is_the_mean_square_within() -> None:
    groups = [[1.0, 1.1, 0.9], [10.0, 10.4], [5.0]]
    found = pooled_spread(groups)
    logs = [np.log(group) for group in groups]
    within = sum(float(((x - x.mean()) ** 2).sum()) for x in logs)
    assert found is not None and found.degrees == 3
    assert found.log_sd == pytest.approx(math.sqrt(within / 3))
    assert pooled_spread([[1.0], [2.0]]) is None


def test_few_values_borrow_noise_and_many_keep_their_own() -> None:
    few, many = [1.0, 1.0001], [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 0.99, 1.02, 0.98]
    borrowed = spread_for(few, [few, many])
    own = own_spread(few)
    assert borrowed is not None and own is not None
    assert borrowed.degrees == 11 and borrowed.log_sd > own.log_sd
    assert spread_for(many, [few, many]) == own_spread(many)
    assert own_spread(many).degrees == FEW_DEGREES  # type: ignore[union-attr]


@settings(max_examples=40, deadline=None)
@given(figures, st.lists(figures, max_size=4))
def test_borrowing_never_makes_the_noise_smaller(values: list[float], others: list[list[float]]) -> None:
    found, own = spread_for(values, [values, *others]), own_spread(values)
    assert found is not None and own is not None
    assert found.log_sd >= own.log_sd - 1e-12
    assert found.degrees >= own.degrees


def test_the_false_alarm_rate_is_kept_with_borrowed_noise() -> None:
    rng = np.random.default_rng(2)
    alarms, trials = 0, 3000
    for _ in range(trials):
        cells = [np.exp(rng.normal(0, 0.01, 2)).tolist() for _ in range(4)]
        new = np.exp(rng.normal(0, 0.01, 2)).tolist()
        alarms += predict(cells[0], new, 0.05, spread_for(cells[0], cells)).p_larger < 0.05
    assert alarms / trials < 0.05  # the larger of two spreads: never above, a little below


@pytest.mark.parametrize(("times", "most"), [(1.5, 0.015), (2, 0.02), (3, 0.03)])
def test_what_borrowed_noise_costs_a_cell_that_is_noisier_than_its_like(times: float, most: float) -> None:
    """At a rate of 1 %, five processes each: more false alarms than promised, within these limits."""
    rng = np.random.default_rng(1)
    alarms, trials = 0, 6000
    for _ in range(trials):
        cells = [np.exp(rng.normal(0, 0.01 * scale, 5)).tolist() for scale in (times, 1, 1)]
        new = np.exp(rng.normal(0, 0.01 * times, 5)).tolist()
        alarms += predict(cells[0], new, 0.01, spread_for(cells[0], cells, 0.5)).p_larger < 0.01
    assert alarms / trials < most + 3 * math.sqrt(most / trials)


@pytest.mark.parametrize("processes", [3, 6])
@pytest.mark.parametrize("correlation", [0.5, 1.0])
def test_shared_noise_counts_for_fewer_degrees_of_freedom(correlation: float, processes: int) -> None:
    """Cells of one block whose noise is in part the block's own."""
    rng = np.random.default_rng(4)
    alarms, trials = 0, 3000
    for _ in range(trials):
        shared = rng.normal(0, 0.01 * math.sqrt(correlation), 2 * processes)
        own = rng.normal(0, 0.01 * math.sqrt(1 - correlation) + 1e-9, (4, 2 * processes))
        cells = np.exp(shared + own)
        groups, new = cells[:, :processes].tolist(), cells[0, processes:].tolist()
        alarms += predict(groups[0], new, 0.01, spread_for(groups[0], groups, correlation)).p_larger < 0.01
    assert alarms / trials < 0.0155  # 0.01 and three standard errors
    assert pooled_spread([[1.0, 2.0]] * 4, 1.0).degrees == 1  # type: ignore[union-attr]
