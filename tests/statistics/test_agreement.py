"""Formulas that are written out, because importing scipy.stats or statsmodels takes longer than a report, give what
these give."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import confint_proportions_2indep
from statsmodels.stats.weightstats import ttost_paired

from harness.statistics.independent import independent_ratio
from harness.statistics.proportions import Pairs, mcnemar_p, newcombe, wilson
from harness.statistics.ratios import difference_p, equivalence_p, mean_interval
from harness.statistics.strata import Stratum, stratified_p

COUNTS = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
CONFIDENCES = st.sampled_from([0.9, 0.95, 0.998])
FIGURES = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=8).filter(lambda found: max(found) - min(found) > 1e-3)
SIDES = st.integers(2, 6).flatmap(lambda n: st.tuples(*[st.lists(st.floats(0.5, 2.0), min_size=n, max_size=n)] * 2))


@settings(max_examples=30, deadline=None)
@given(COUNTS, CONFIDENCES)
def test_wilson(count, confidence):
    bounds = stats.binomtest(*count).proportion_ci(confidence, method="wilson")
    found = wilson(*count, confidence)
    assert (found.low, found.high) == pytest.approx((bounds.low, bounds.high), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(COUNTS, COUNTS, CONFIDENCES)
def test_newcombe(old, new, confidence):
    bounds = confint_proportions_2indep(*new, *old, method="newcomb", alpha=1 - confidence)
    found = newcombe(old, new, confidence)
    assert (found.low, found.high) == pytest.approx(bounds, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar(lost, won):
    expected = mcnemar([[3, lost], [won, 4]], exact=True).pvalue if lost + won else 1.0
    assert mcnemar_p(Pairs(both=3, only_reference=lost, only_candidate=won, neither=4)) == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(FIGURES, CONFIDENCES)
def test_student(values, confidence):
    bounds = stats.ttest_1samp(values, 0.0).confidence_interval(confidence)
    found = mean_interval(values, confidence)
    assert (found.low, found.high) == pytest.approx((bounds.low, bounds.high), rel=1e-9, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(FIGURES, FIGURES, CONFIDENCES)
def test_welch(old, new, confidence):
    bounds = stats.ttest_ind([math.log(x) for x in new], [math.log(x) for x in old], equal_var=False)
    low, high = bounds.confidence_interval(confidence)
    found = independent_ratio(old, new, confidence)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(SIDES)
def test_paired_tests(sides):
    old, new = sides
    logs = [math.log(b) - math.log(a) for a, b in zip(old, new, strict=True)]
    if max(logs) - min(logs) < 1e-3:
        return
    assert difference_p(old, new) == pytest.approx(stats.ttest_1samp(logs, 0.0).pvalue, rel=1e-6, abs=1e-12)
    bound = math.log1p(0.03)
    expected = ttost_paired(np.log(new), np.log(old), -bound, bound)[0]
    assert equivalence_p(old, new, 0.03) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(COUNTS, COUNTS)
def test_one_stratum_is_fishers_test(old, new):
    stratum = Stratum(reference=old[0], reference_n=old[1], candidate=new[0], candidate_n=new[1])
    table = [[new[0], new[1] - new[0]], [old[0], old[1] - old[0]]]
    for worse, side in ((True, "less"), (False, "greater")):
        assert stratified_p([stratum], worse) == pytest.approx(stats.fisher_exact(table, side).pvalue, rel=1e-7)
