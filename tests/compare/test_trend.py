from __future__ import annotations

import numpy as np
import pytest
import ruptures
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare.trend import LEAST, PENALTY, ROLLING, SEGMENT, Point, change_points, segment_ends, trend


def series(values: list[float]) -> list[Point]:
    return [Point(result=f"r{n}", at=f"2026-01-{n + 1:02d}T00:00:00+00:00", value=v) for n, v in enumerate(values)]


def noisy(levels: list[float], noise: float = 0.01, seed: int = 0) -> list[Point]:
    rng = np.random.default_rng(seed)
    return series([level * float(np.exp(rng.normal(0, noise))) for level in levels])


def test_a_step_is_dated_and_measured() -> None:
    [found] = change_points(noisy([0.3] * 12 + [0.33] * 8))
    assert found.result == "r12"
    assert found.after / found.before == pytest.approx(1.1, rel=0.02)


def test_a_spike_and_few_results_are_no_change() -> None:
    assert change_points(noisy([0.3] * 9 + [0.45] + [0.3] * 8)) == []
    assert change_points(noisy([0.3, 0.6] * (SEGMENT - 1))) == []
    assert change_points(series([0.3] * 20)) == []


@settings(max_examples=30, deadline=None)
@given(st.integers(2 * SEGMENT, 60), st.integers(0, 10**6))
def test_segments_are_those_of_ruptures(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 1, n) + np.repeat(rng.normal(0, 4, 6), 10)[:n]
    expected = ruptures.KernelCPD(kernel="linear", min_size=SEGMENT).fit(values).predict(pen=PENALTY * np.log(n))
    assert segment_ends(values, PENALTY * float(np.log(n))) == expected


def test_level_noise_is_rarely_called_a_change() -> None:
    called = sum(bool(change_points(noisy([0.3] * 30, seed=seed))) for seed in range(120))
    assert called <= 8


def test_a_slow_drift_hides_from_the_rolling_reference_and_not_from_the_pinned_one() -> None:
    points = noisy([0.3 * 1.01**night for night in range(25)], noise=0.008)
    found = trend("pi0-fsdp2", "step_seconds", points, [0.3, 0.301, 0.299], 0.998)
    assert found is not None and found.rolling is not None
    assert found.pinned == pytest.approx(1.27, rel=0.03)
    assert not found.rolling.excludes(1.0)
    assert found.rolling.n == ROLLING


def test_what_is_missing_stays_missing() -> None:
    assert trend("c", "m", [], [], 0.95) is None
    found = trend("c", "m", series([1.0] * LEAST), [], 0.95)
    assert found is not None
    assert (found.pinned, found.rolling, found.changes) == (None, None, [])


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 1e9))
def test_units_do_not_matter(unit: float) -> None:
    points = noisy([0.3] * 10 + [0.4] * 10)
    scaled = [point.model_copy(update={"value": point.value * unit}) for point in points]
    assert [c.result for c in change_points(scaled)] == [c.result for c in change_points(points)]
