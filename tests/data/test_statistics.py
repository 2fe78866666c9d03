"""Moments, and the normalisation they define."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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
