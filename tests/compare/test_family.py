from __future__ import annotations

import math

import pytest
from comparison_records import a_run, a_speed
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare.family import overall_speedups, settle
from harness.compare.throughput import Finding, Speedup, judge_speedup, measure_speedup, pair_runs
from harness.suite import Gate

GATE = Gate()
TIMES = st.lists(st.floats(0.05, 5.0), min_size=2, max_size=6)


def a_speedup(model: str, old: list[float], new: list[float], candidate: str = "fsdp2") -> Speedup:
    sides = []
    for key, times in (("zero3", old), ("fsdp2", new)):
        runs = [a_run(key, repeat=repeat) for repeat in range(len(times))]
        sides.append([r.model_copy(update={"speed": a_speed(s, r.run)}) for r, s in zip(runs, times, strict=True)])
    return measure_speedup(f"{model}-zero3", f"{model}-{candidate}", pair_runs(*sides), True, GATE)


FAST = [1.0, 1.02, 0.99], [0.95, 0.955, 0.96]


def test_one_of_many_needs_more_than_one_alone() -> None:
    alone, [one] = a_speedup("pi0", *FAST), settle([a_speedup("pi0", *FAST)], GATE)
    crowd = settle([a_speedup("pi0", *FAST, candidate=f"b{n}") for n in range(9)], GATE)
    assert one.p_value == alone.p_value
    assert one.finding is Finding.FASTER
    assert crowd[0].p_value == pytest.approx(min(1.0, 9 * alone.p_value))
    assert {s.finding for s in crowd} == {Finding.NOT_SHOWN}
    assert "no difference is shown" in judge_speedup(crowd[0], GATE).reason


def test_equality_is_a_statement_of_its_own() -> None:
    [equal] = settle([a_speedup("pi0", [1.0, 1.001, 0.999, 1.0], [1.001, 1.0, 1.0, 0.999])], GATE)
    assert (equal.finding, equal.equal) == (Finding.EQUAL, True)
    [faster] = settle([a_speedup("pi0", *FAST)], GATE)
    assert not faster.equal
    assert "equality within 3% not shown" in judge_speedup(faster, GATE).reason
    assert "equality within 3% shown" in judge_speedup(equal, GATE).reason


def test_nothing_is_an_empty_family() -> None:
    assert settle([], GATE) == []
    assert overall_speedups([], 0.95) == []


def test_the_mean_over_models_is_geometric_and_needs_two() -> None:
    twice, half = a_speedup("pi0", [1.0, 1.0], [0.5, 0.5]), a_speedup("dm0", [1.0, 1.0], [2.0, 2.0])
    [found] = overall_speedups([twice, half], 0.95)
    assert found.speedup.estimate == pytest.approx(1.0)
    assert (found.models, found.speedup.n) == (["pi0", "dm0"], 2)
    assert overall_speedups([twice], 0.95) == []
    assert overall_speedups([twice, half.model_copy(update={"comparable": False})], 0.95) == []


@settings(max_examples=30, deadline=None)
@given(TIMES, st.floats(1.001, 3.0), st.floats(0.01, 100.0))
def test_units_and_sides_do_not_matter(old: list[float], factor: float, unit: float) -> None:
    new = [factor * x * (1 + 0.01 * (i % 2)) for i, x in enumerate(old)]
    here = a_speedup("pi0", old, new)
    there = a_speedup("pi0", new, old)
    scaled = a_speedup("pi0", [unit * x for x in old], [unit * x for x in new])
    assert here.p_value == pytest.approx(there.p_value, rel=1e-6, abs=1e-12)
    assert here.equal_p == pytest.approx(there.equal_p, rel=1e-6, abs=1e-9)
    assert here.p_value == pytest.approx(scaled.p_value, rel=1e-5, abs=1e-9)
    assert here.speedup is not None and there.speedup is not None
    assert here.speedup.estimate * there.speedup.estimate == pytest.approx(1.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=4), st.lists(st.floats(0.5, 2.0), min_size=2, max_size=4))
def test_the_overall_figure_lies_between_the_models(first: list[float], second: list[float]) -> None:
    repeats = min(len(first), len(second))
    models = [a_speedup(name, [1.0] * repeats, times[:repeats]) for name, times in (("a", first), ("b", second))]
    [found] = overall_speedups(models, 0.95)
    estimates = [m.speedup.estimate for m in models if m.speedup]
    assert min(estimates) * (1 - 1e-9) <= found.speedup.estimate <= max(estimates) * (1 + 1e-9)
    assert math.log(found.speedup.estimate) == pytest.approx(sum(map(math.log, estimates)) / 2, abs=1e-9)
