from __future__ import annotations

import pytest
from comparison_records import a_failed_run, a_run, a_speed

from harness.compare.family import settle
from harness.compare.throughput import Finding, counts, judge_speedup, measure_speedup, pair_runs
from harness.compare.verdict import Verdict
from harness.suite import Gate
from harness.train.records import InTurns, Outcome, RunRecord

GATE = Gate()


def timed(key: str, seconds: list[float], steadiness: str = "STEADY") -> list[RunRecord]:
    runs = [a_run(key, repeat=repeat) for repeat in range(len(seconds))]
    return [r.model_copy(update={"speed": a_speed(s, r.run, steadiness)}) for r, s in zip(runs, seconds, strict=True)]


def verdict(old: list[RunRecord], new: list[RunRecord], comparable: bool = True) -> tuple[Verdict, Finding]:
    [found] = settle([measure_speedup("pi0-zero3", "pi0-fsdp2", pair_runs(old, new), comparable, GATE)], GATE)
    return judge_speedup(found, GATE).verdict, found.finding


def test_faster_slower_equal_and_not_shown() -> None:
    base = timed("zero3", [1.0, 1.01, 0.99, 1.0])
    assert verdict(base, timed("fsdp2", [0.80, 0.81, 0.79, 0.80])) == (Verdict.IMPROVED, Finding.FASTER)
    assert verdict(base, timed("fsdp2", [1.25, 1.26, 1.24, 1.26])) == (Verdict.PASS, Finding.SLOWER)
    assert verdict(base, timed("fsdp2", [1.0, 1.011, 0.992, 1.001])) == (Verdict.PASS, Finding.EQUAL)
    assert verdict(base, timed("fsdp2", [0.8, 1.2, 0.9, 1.1])) == (Verdict.INCONCLUSIVE, Finding.NOT_SHOWN)


def test_a_speedup_is_the_references_time_over_the_candidates() -> None:
    found = measure_speedup("a", "b", pair_runs(timed("zero3", [1.0] * 3), timed("fsdp2", [0.5] * 3)), True, GATE)
    assert found.speedup is not None and found.speedup.estimate == pytest.approx(2.0)


def test_one_pair_shows_nothing() -> None:
    assert verdict(timed("zero3", [1.0]), timed("fsdp2", [0.5])) == (Verdict.INCONCLUSIVE, Finding.NOT_SHOWN)


def test_unlike_cells_are_not_ranked() -> None:
    old, new = timed("zero3", [1.0, 1.01]), timed("fsdp2", [0.5, 0.51])
    assert verdict(old, new, comparable=False)[0] is Verdict.INCOMPARABLE


@pytest.mark.parametrize("steadiness", ["UNSTEADY", "SLOWING"])
def test_runs_that_never_settled_are_not_tested(steadiness: str) -> None:
    old, new = timed("zero3", [1.0, 1.01, 1.0]), timed("fsdp2", [0.5, 0.51, 0.5], steadiness)
    found = measure_speedup("a", "b", pair_runs(old, new), True, GATE)
    assert judge_speedup(found, GATE).verdict is Verdict.UNSTEADY
    assert found.speedup is not None and found.speedup.low is None and found.finding is Finding.NOT_SHOWN


def test_steady_pairs_are_kept_when_others_are_not() -> None:
    old = timed("zero3", [1.0, 1.01, 1.0])
    new = [*timed("fsdp2", [0.5, 0.51]), timed("fsdp2", [9.0, 9.0, 9.0], "UNSTEADY")[2]]
    [found] = settle([measure_speedup("a", "b", pair_runs(old, new), True, GATE)], GATE)
    assert (found.pairs, found.unsteady_pairs, found.finding) == (2, 1, Finding.FASTER)


def test_pairs_are_made_by_repeat_and_only_of_runs_that_ended_well() -> None:
    old = [a_run("zero3", repeat=0), a_run("zero3", repeat=1), a_run("zero3", repeat=2)]
    new = [a_run("fsdp2", repeat=2), a_failed_run("fsdp2", Outcome.OOM, repeat=1)]
    assert [(a.run.repeat, b.run.repeat) for a, b in pair_runs(old, new)] == [(2, 2)]
    assert verdict(old, [])[0] is Verdict.INCONCLUSIVE


def test_the_smallest_detectable_shrinks_with_pairs() -> None:
    def detectable(count: int) -> float:
        old, new = timed("zero3", [1.0, 1.02] * count), timed("fsdp2", [0.9, 0.9] * count)
        found = measure_speedup("a", "b", pair_runs(old, new), True, GATE).smallest_detectable
        assert found is not None
        return found

    assert detectable(1) > detectable(2) > detectable(4) > 1


def in_turns(runs: list[RunRecord], block: str, seconds: list[float]) -> list[RunRecord]:
    company = InTurns(block=block, runs=["a", "b"], turn_steps=4)
    return [
        r.model_copy(update={"in_turns": company, "speed": r.speed.model_copy(update={"turn_step_seconds": seconds})})
        for r in runs
    ]


def test_runs_in_turns_are_judged_by_their_ratio_and_only_within_their_block() -> None:
    slowing = [1.0 + 0.1 * turn for turn in range(9)]
    old = in_turns(timed("zero3", [1.4, 1.41], "SLOWING"), "one", slowing)
    new = in_turns(timed("fsdp2", [0.7, 0.71], "SLOWING"), "one", [s / 2 for s in slowing])
    assert verdict(old, new) == (Verdict.IMPROVED, Finding.FASTER)
    settling = in_turns(new, "one", [0.9] * 4 + [0.5] * 5)
    assert verdict(old, settling)[0] is Verdict.UNSTEADY
    assert verdict(old, in_turns(new, "another", [s / 2 for s in slowing]))[0] is Verdict.UNSTEADY


def test_a_run_s_own_figures_are_shown_when_it_settled_or_took_turns() -> None:
    settled, slowing = timed("zero3", [1.0]), timed("zero3", [1.0], "SLOWING")
    assert [counts(run) for run in (*settled, *slowing, *in_turns(slowing, "one", [1.0] * 8))] == [True, False, True]
    assert not counts(a_failed_run("zero3", Outcome.CRASHED))


def test_cpu_time_is_a_second_figure() -> None:
    old, new = timed("zero3", [1.0, 1.01]), timed("fsdp2", [0.5, 0.51])
    found = measure_speedup("a", "b", pair_runs(old, new), True, GATE)
    assert found.cpu_speedup is not None and found.speedup is not None
    assert found.cpu_speedup.estimate == pytest.approx(found.speedup.estimate)
    assert measure_speedup("a", "b", [], True, GATE).cpu_speedup is None
