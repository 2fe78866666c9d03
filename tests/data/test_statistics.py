"""Moments, and the normalisation they define."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data import statistics
from harness.data.poses import tool_frame
from harness.data.statistics import STATE_FLOOR, moments


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_merged_moments_are_those_of_all_rows(lengths, seed):
    random = np.random.default_rng(seed)
    parts = [random.normal(random.normal() * 100, 2, (length, 2)) for length in lengths]
    rows = np.concatenate(parts)
    found = moments(parts, (1e-3, 1e-3))
    assert found.count == len(rows)
    np.testing.assert_allclose(found.mean, rows.mean(0), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.std, rows.std(0), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found.q01, np.quantile(rows, 0.01, axis=0))
    np.testing.assert_allclose(found.q99, np.quantile(rows, 0.99, axis=0))


def test_normalise_and_back():
    rows = np.random.default_rng(0).normal(3, 5, (100, 2))
    found = moments([rows], (1e-3, 1e-3))
    scored = found.normalise(rows)
    assert scored.dtype == np.float32
    np.testing.assert_allclose(scored.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(scored.std(0), 1, atol=1e-6)
    np.testing.assert_allclose(found.unnormalise(scored), rows, atol=1e-5)


def test_a_constant_dimension_is_divided_by_its_floor():
    found = moments([np.full((10, 1), 2.0)], (0.5,))
    np.testing.assert_allclose(found.normalise(np.array([[2.0], [2.5]])), [[0.0], [1.0]])


def test_flipped_axis_angles_cannot_explode():
    random = np.random.default_rng(0)
    demonstrated = np.zeros((200, 8))
    demonstrated[:, 3:6] = random.normal([3.1415, 0, 0], 1e-4, (200, 3))
    found = moments([tool_frame(demonstrated)], STATE_FLOOR)
    met = demonstrated.copy()
    met[:, 3:6] = -met[:, 3:6] + random.normal(0, 0.02, (200, 3))
    assert np.abs(found.normalise(tool_frame(met))).max() < 2


ROWS = np.arange(101.0)[:, None]  # q01 is 1, q99 is 99


@pytest.mark.parametrize(
    ("normalisation", "values", "expected"),
    [
        ("z-score", [50, 50 + ROWS.std()], [0, 1]),
        ("quantile", [1, 50, 99, 148], [-1, 0, 1, 2]),
        ("clipped-quantile", [1, 50, 99, 148], [-1, 0, 1, 1]),
        ("min-max", [0, 50, 100, 150], [-1, 0, 1, 2]),
    ],
)
def test_normalisations_by_hand(normalisation, values, expected):
    found = moments([ROWS], (1e-3,), normalisation)
    told = found.normalise(np.array(values, float)[:, None])
    np.testing.assert_allclose(told[:, 0], expected, atol=1e-6)
    within = np.array([[3.0], [60.0], [97.0]])
    np.testing.assert_allclose(found.unnormalise(found.normalise(within)), within, rtol=1e-5)
    if normalisation == "clipped-quantile":
        np.testing.assert_allclose(found.unnormalise(np.array([[5.0]])), [[99.0]])


@pytest.mark.parametrize("normalisation", ["z-score", "quantile", "clipped-quantile", "min-max"])
def test_no_normalisation_divides_by_less_than_the_floor(normalisation):
    found = moments([np.full((10, 1), 2.0)], (0.5,), normalisation)
    np.testing.assert_allclose(found.normalise(np.array([[2.0], [2.25]])), [[0.0], [0.5]])


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=30), kept=st.integers(20, 60))
@settings(max_examples=40, deadline=None)
def test_quantiles_of_a_long_stream_are_those_of_every_nth_row(lengths, kept):
    rows = np.arange(float(sum(lengths)))[:, None]
    parts = np.split(rows, np.cumsum(lengths)[:-1])
    before = statistics.QUANTILE_ROWS
    statistics.QUANTILE_ROWS = kept
    try:
        found = moments(parts, (1e-3,))
    finally:
        statistics.QUANTILE_ROWS = before
    stride = 1
    while -(-len(rows) // stride) > kept:
        stride *= 3
    np.testing.assert_allclose(found.q01, np.quantile(rows[::stride], 0.01, axis=0))
    np.testing.assert_allclose(found.q99, np.quantile(rows[::stride], 0.99, axis=0))
    assert (found.minimum, found.maximum) == ((0.0,), (len(rows) - 1.0,))
