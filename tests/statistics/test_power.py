from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.statistics.power import (
    detectable_paired_difference,
    detectable_rate_difference,
    detectable_shift,
    processes_needed,
    smallest_detectable_log_ratio,
    smallest_p_mcnemar,
)
from harness.statistics.prediction import Spread, predict
from harness.statistics.proportions import Pairs, mcnemar_p


@pytest.mark.parametrize(("pairs", "alpha"), [(3, 0.05), (10, 0.01)])
def test_the_detectable_ratio_is_found_nine_times_in_ten(pairs: int, alpha: float) -> None:
    rng = np.random.default_rng(2)
    effect = smallest_detectable_log_ratio(pairs, 0.02, alpha)
    draws = rng.normal(effect, 0.02, (6000, pairs))
    found = stats.ttest_1samp(draws, 0.0, axis=1).pvalue < alpha
    assert found.mean() == pytest.approx(0.9, abs=0.015)


def test_the_detectable_shift_is_found_nine_times_in_ten() -> None:
    rng = np.random.default_rng(3)
    effect = detectable_shift(10, 2, Spread(log_sd=0.01, degrees=9), 0.01)
    assert effect is not None
    hits, trials = 0, 1500
    for _ in range(trials):
        old, new = np.exp(rng.normal(0, 0.01, 10)), effect * np.exp(rng.normal(0, 0.01, 2))
        hits += predict(old.tolist(), new.tolist(), 0.01).p_larger < 0.01
    assert hits / trials == pytest.approx(0.9, abs=0.03)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.floats(1e-3, 0.1), st.floats(1e-4, 0.2))
def test_more_pairs_less_noise_or_more_alarms_see_more(pairs: int, sd: float, alpha: float) -> None:
    seen = smallest_detectable_log_ratio(pairs, sd, alpha)
    assert smallest_detectable_log_ratio(pairs + 1, sd, alpha) < seen
    assert smallest_detectable_log_ratio(pairs, sd * 2, alpha) == pytest.approx(2 * seen)
    assert smallest_detectable_log_ratio(pairs, sd, alpha / 2) > seen


def test_one_run_sees_nothing() -> None:
    assert smallest_detectable_log_ratio(1, 0.01, 0.05) == math.inf
    assert detectable_shift(1, 5, None, 0.05) is None
    assert detectable_shift(5, 0, Spread(log_sd=0.01, degrees=4), 0.05) is None
    assert processes_needed(1.001, 0.5, 0.001, most=20) is None
    assert detectable_rate_difference(0.9, 0, 5, 0.05) is None
    assert detectable_paired_difference(0.1, 0, 0.05) is None


def test_two_processes_at_a_strict_rate_do_not_overflow() -> None:
    found = detectable_shift(2, 1, Spread(log_sd=0.5, degrees=1), 1e-6)
    assert found is not None and math.isfinite(found) and found > 1e100


def test_both_branches_of_the_noncentrality_meet() -> None:
    # one degree of freedom: t(1 - tail) is about 1 / (pi tail), so these two tails stand on either side of FAR
    near, far = (smallest_detectable_log_ratio(2, 0.01, 2 / (math.pi * t)) for t in (99.9, 100.1))
    assert far / near == pytest.approx(100.1 / 99.9, rel=1e-3)


def test_rate_differences_shrink_with_episodes_and_stay_rates() -> None:
    few, many = (detectable_rate_difference(0.95, n, n, 0.01) for n in (50, 500))
    assert few is not None and many is not None and few > many > 0
    assert detectable_rate_difference(0.5, 1, 1, 0.001) == 1.0
    assert detectable_rate_difference(1.0, 500, 500, 0.01) != 0.0  # all succeeded, which is no proof of no noise


def test_mcnemar_can_reach_what_it_says_and_no_less() -> None:
    for n in (1, 5, 6, 10):
        extreme = Pairs(both=0, only_reference=n, only_candidate=0, neither=0)
        assert smallest_p_mcnemar(n) == pytest.approx(mcnemar_p(extreme))
    assert smallest_p_mcnemar(5) > 0.05 > smallest_p_mcnemar(6)


def test_the_module_brings_nothing_heavy() -> None:
    heavy = "[m for m in ('scipy', 'statsmodels', 'pandas', 'torch', 'numpy') if m in sys.modules]"
    code = f"import sys, harness.statistics.power; print({heavy})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("baseline", [None, 10])
def test_the_processes_asked_for_are_the_fewest_that_do(baseline: int | None) -> None:
    count = processes_needed(1.05, 0.01, 0.001, baseline)
    assert count is not None

    def seen(k: int) -> float:
        n = baseline or k
        found = detectable_shift(n, k, Spread(log_sd=0.01, degrees=n - 1), 0.001)
        assert found is not None
        return found

    assert seen(count) <= 1.05
    assert count == 1 or (baseline is None and count == 2) or seen(count - 1) > 1.05


@pytest.mark.parametrize(
    ("rate", "episodes", "alpha"), [(1.0, 20, 0.005), (1.0, 20, 5e-4), (0.95, 50, 0.01), (0.4, 50, 0.001)]
)
def test_a_drop_called_detectable_is_found_by_the_exact_test(rate: float, episodes: int, alpha: float) -> None:
    """At rates near 1 too, where the variance of the worse side is much the larger."""
    from scipy.stats import binom, hypergeom

    drop = detectable_rate_difference(rate, episodes, episodes, alpha)
    assert drop is not None
    edge = 0.5 / (episodes + 1)
    before = min(max(rate, edge), 1 - edge)
    counts = range(episodes + 1)
    found = math.fsum(
        binom.pmf(x, episodes, before) * binom.pmf(y, episodes, max(0.0, before - drop))
        for x in counts
        for y in counts
        if hypergeom.sf(x - 1, 2 * episodes, x + y, episodes) < alpha
    )
    assert 0.88 < found < 0.98
