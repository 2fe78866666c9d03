from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import StratifiedTable

from harness.statistics.strata import (
    Stratum,
    common_odds_ratio,
    equivalent_p,
    mean_difference,
    stratified_p,
    two_sided_p,
)


def stratum(reference: int, reference_n: int, candidate: int, candidate_n: int) -> Stratum:
    return Stratum(reference=reference, reference_n=reference_n, candidate=candidate, candidate_n=candidate_n)


def fisher_p(reference: tuple[int, int], candidate: tuple[int, int], worse: bool) -> float:
    table = [[n, total - n] for n, total in (candidate, reference)]
    return float(stats.fisher_exact(table, alternative="less" if worse else "greater").pvalue)


@st.composite
def strata(draw: st.DrawFn) -> Stratum:
    old_n, new_n = draw(st.integers(1, 30)), draw(st.integers(1, 30))
    return stratum(draw(st.integers(0, old_n)), old_n, draw(st.integers(0, new_n)), new_n)


MANY = st.lists(strata(), min_size=1, max_size=4)


def mirrored(s: Stratum) -> Stratum:
    return stratum(s.candidate, s.candidate_n, s.reference, s.reference_n)


def test_the_exact_test_is_near_statsmodels_cmh_for_large_counts() -> None:
    rows = [stratum(433, 500, 467, 500), stratum(488, 500, 480, 500), stratum(470, 500, 485, 500)]
    tables = [[[s.candidate, s.candidate_n - s.candidate], [s.reference, s.reference_n - s.reference]] for s in rows]
    by_chi2 = float(StratifiedTable(tables).test_null_odds(correction=True).pvalue)
    assert two_sided_p(rows) == pytest.approx(by_chi2, rel=0.1)


def test_simpsons_paradox_does_not_fool_it() -> None:
    """More hard episodes on one side lower its pooled rate; within each task it is the better one."""
    rows = [stratum(90, 100, 10, 10), stratum(1, 10, 30, 100)]
    pooled = (sum(s.reference for s in rows), 110), (sum(s.candidate for s in rows), 110)
    assert fisher_p(*pooled, worse=True) < 1e-6
    assert stratified_p(rows, worse=True) > 0.9


@settings(max_examples=30, deadline=None)
@given(strata(), st.booleans())
def test_one_stratum_is_fishers_test(s: Stratum, worse: bool) -> None:
    fisher = fisher_p((s.reference, s.reference_n), (s.candidate, s.candidate_n), worse)
    assert stratified_p([s], worse) == pytest.approx(fisher, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(MANY)
def test_exchanging_the_sides_mirrors_everything(rows: list[Stratum]) -> None:
    other = [mirrored(s) for s in rows]
    assert stratified_p(rows, worse=True) == pytest.approx(stratified_p(other, worse=False), abs=1e-9)
    here, there = mean_difference(rows), mean_difference(other)
    assert here.estimate == pytest.approx(-there.estimate, abs=1e-12)
    assert here.low == pytest.approx(-float(there.high or 0), abs=1e-12)
    assert equivalent_p(rows, 0.1) == pytest.approx(equivalent_p(other, 0.1), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(MANY, st.randoms())
def test_the_order_of_strata_is_nothing(rows: list[Stratum], random: object) -> None:
    shuffled = rows[::-1]
    assert stratified_p(rows, worse=True) == pytest.approx(stratified_p(shuffled, worse=True), abs=1e-9)
    assert equivalent_p(rows, 0.05) == pytest.approx(equivalent_p(shuffled, 0.05), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(MANY)
def test_one_success_less_is_never_a_better_verdict(rows: list[Stratum]) -> None:
    worse = [s.model_copy(update={"candidate": s.candidate - 1}) if s.candidate else s for s in rows]
    assert stratified_p(worse, worse=True) <= stratified_p(rows, worse=True) + 1e-9
    assert mean_difference(worse).estimate <= mean_difference(rows).estimate


@settings(max_examples=30, deadline=None)
@given(MANY, st.floats(0.01, 0.2))
def test_a_wider_margin_is_easier(rows: list[Stratum], margin: float) -> None:
    assert equivalent_p(rows, margin * 2) <= equivalent_p(rows, margin) + 1e-12


@pytest.mark.parametrize("rows", [[stratum(0, 1, 0, 1)], [stratum(1, 1, 1, 1)], [stratum(0, 50, 0, 50)] * 2])
def test_all_zero_all_one_and_a_single_episode_show_nothing(rows: list[Stratum]) -> None:
    assert two_sided_p(rows) == 1.0
    assert common_odds_ratio(rows) is None
    assert rows[0].reference_n > 1 or equivalent_p(rows, 0.05) > 0.05


def test_complete_separation_is_seen_and_has_no_odds_ratio() -> None:
    rows = [stratum(50, 50, 0, 50)]
    assert stratified_p(rows, worse=True) < 1e-20
    assert common_odds_ratio(rows) is None
    assert mean_difference(rows).estimate == -1.0


@settings(max_examples=30, deadline=None)
@given(MANY)
def test_the_odds_ratio_agrees_with_its_interval(rows: list[Stratum]) -> None:
    found = common_odds_ratio(rows)
    assert found is None or (found.low is not None and found.high is not None and found.low <= found.estimate)


@pytest.mark.parametrize("bad", [[], [stratum(0, 0, 1, 2)], [stratum(3, 2, 1, 2)]])
def test_what_is_no_count_is_refused(bad: list[Stratum]) -> None:
    with pytest.raises(ValueError, match=r"stratum|episodes"):
        stratified_p(bad, worse=True)
