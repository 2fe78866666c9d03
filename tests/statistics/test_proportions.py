from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.statistics.proportions import (
    Pairs,
    mcnemar_p,
    newcombe,
    noninferior,
    paired_difference,
    wilson,
)

counts = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
tables = st.builds(
    Pairs,
    both=st.integers(0, 60),
    only_reference=st.integers(0, 60),
    only_candidate=st.integers(0, 60),
    neither=st.integers(1, 60),
)


def test_wilson_on_a_published_example() -> None:
    # Newcombe 1998, Statistics in Medicine 17: 857-872, table I: 81/263 gives 0.2553 to 0.3662
    found = wilson(81, 263)
    assert (found.low, found.high) == (pytest.approx(0.2553, abs=1e-4), pytest.approx(0.3662, abs=1e-4))


def test_newcombe_on_a_published_example() -> None:
    # Newcombe 1998, Statistics in Medicine 17: 873-890, table II, method 10: 56/70 - 48/80 gives 0.0524 to 0.3339
    found = newcombe((48, 80), (56, 70))
    assert found.estimate == pytest.approx(0.2)
    assert (found.low, found.high) == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))


@settings(max_examples=50, deadline=None)
@given(counts)
def test_wilson_holds_its_estimate_and_stays_a_rate(count: tuple[int, int]) -> None:
    found = wilson(*count)
    assert found.low is not None and found.high is not None
    assert 0 <= found.low <= found.estimate + 1e-12
    assert found.estimate - 1e-12 <= found.high <= 1


@pytest.mark.parametrize("n", [1, 20, 500])
def test_none_and_all_still_leave_doubt(n: int) -> None:
    none, every = wilson(0, n), wilson(n, n)
    assert none.low == 0 and none.high is not None and none.high > 0
    assert every.high == pytest.approx(1) and every.low is not None and every.low < 1


@settings(max_examples=50, deadline=None)
@given(counts, counts)
def test_newcombe_mirrors_when_the_sides_are_exchanged(a: tuple[int, int], b: tuple[int, int]) -> None:
    there, back = newcombe(a, b), newcombe(b, a)
    assert there.low is not None and back.high is not None
    assert there.low == pytest.approx(-back.high, abs=1e-9)
    assert -1 <= there.low <= there.estimate


def test_complete_separation_has_a_finite_answer() -> None:
    found = newcombe((0, 10), (10, 10))
    assert found.estimate == 1 and found.low == pytest.approx(0.6075, abs=1e-3) and found.high == 1


@settings(max_examples=50, deadline=None)
@given(tables)
def test_mcnemar_does_not_care_which_is_the_reference(pairs: Pairs) -> None:
    swapped = pairs.model_copy(update={"only_reference": pairs.only_candidate, "only_candidate": pairs.only_reference})
    assert mcnemar_p(pairs) == pytest.approx(mcnemar_p(swapped))
    there, back = paired_difference(pairs), paired_difference(swapped)
    assert there.low is not None and back.high is not None
    assert there.low == pytest.approx(-back.high, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(tables, st.integers(0, 500))
def test_mcnemar_hears_only_the_episodes_that_differ(pairs: Pairs, more: int) -> None:
    assert mcnemar_p(pairs.model_copy(update={"both": pairs.both + more})) == mcnemar_p(pairs)


def test_mcnemar_by_hand() -> None:
    # 1 against 9 differing episodes: 2 * (C(10,0) + C(10,1)) / 2**10
    assert mcnemar_p(Pairs(both=80, only_reference=9, only_candidate=1, neither=10)) == pytest.approx(22 / 1024)
    assert mcnemar_p(Pairs(both=5, only_reference=0, only_candidate=0, neither=5)) == 1.0


def test_agresti_min_by_hand() -> None:
    # b = 6, c = 2, n = 50: (2.5 - 6.5) / 52 -+ 1.959964 * sqrt(9 - 16 / 52) / 52
    found = paired_difference(Pairs(both=30, only_reference=6, only_candidate=2, neither=12))
    assert found.estimate == pytest.approx(-0.08)
    assert found.low == pytest.approx(-0.18806, abs=1e-4)
    assert found.high == pytest.approx(0.03422, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(tables)
def test_a_larger_margin_is_easier_to_meet(pairs: Pairs) -> None:
    difference = paired_difference(pairs)
    met = [noninferior(difference, margin) for margin in (0.0, 0.05, 0.2, 1.1)]
    assert met == sorted(met)
    assert met[-1]


def test_five_hundred_like_pairs_rule_out_three_points_and_fifty_do_not() -> None:
    large = paired_difference(Pairs(both=470, only_reference=5, only_candidate=5, neither=20))
    small = paired_difference(Pairs(both=47, only_reference=1, only_candidate=1, neither=1))
    assert noninferior(large, 0.03)
    assert not noninferior(small, 0.03)


@pytest.mark.parametrize("bad", [(0, 0), (5, 4), (-1, 4)])
def test_impossible_counts_are_refused(bad: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="episodes"):
        wilson(*bad)
    with pytest.raises(ValueError, match="episodes"):
        newcombe(bad, (1, 2))
    with pytest.raises(ValueError, match="episodes"):
        paired_difference(Pairs(both=0, only_reference=0, only_candidate=0, neither=0))
