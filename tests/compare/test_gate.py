from __future__ import annotations

import numpy as np
import pytest
from comparison_records import MACHINE, a_plan, a_run, a_speed, an_arm, some_episodes
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare.baseline import Acceptance, Baseline, Expiry, accept, expire
from harness.compare.gate import compare_with, differing_fields, first_stage_alarms
from harness.compare.results import Results
from harness.compare.verdict import Judgement, Verdict
from harness.plan import EpisodeKey, Plan, RunKind
from harness.suite import Gate
from harness.train.records import RunRecord

KEYS = [EpisodeKey(task_suite="libero_object", task=t, initial_state=s, seed=7) for t in range(10) for s in range(50)]
GATE = Gate()
KINDS = ("zero3", "zero2", "fsdp2", "ddp")
PLAN: Plan = a_plan(repeats=12, episodes=KEYS)


def some_runs(
    factor: float = 1.0, noise: float = 0.002, seed: int | list[int] = 0, count: int = 12, key: str = "zero3"
) -> list[RunRecord]:
    rng = np.random.default_rng(seed)
    runs = [a_run(key, repeat=repeat) for repeat in range(count)]
    return [
        r.model_copy(update={"speed": a_speed(0.3 * factor * float(np.exp(rng.normal(0, noise))), r.run)}) for r in runs
    ]


def results(
    runs: list[RunRecord],
    successes: int | None = None,
    again: list[RunRecord] | None = None,
    successes_again: int | None = None,
) -> Results:
    """`again`: what fresh processes and fresh episodes gave."""
    episodes = [] if successes is None else some_episodes("pi0-zero3-seed0", KEYS, successes)
    arms = [] if successes is None else [an_arm("pi0-zero3-seed0")]
    fresh = [] if successes_again is None else some_episodes("pi0-zero3-seed0", KEYS, successes_again)
    return Results(
        "r", "", runs, arms=arms, episodes=episodes, confirmation_runs=again or [], confirmation_episodes=fresh
    )


def baseline(runs: list[RunRecord], successes: int | None = None) -> Baseline:
    found = Acceptance(result="r", at="2026-02-01T00:00:00+00:00", by="x", reason="y", command="z")
    return accept(PLAN, results(runs, successes), None, found)


def of(judged: list[Judgement], metric: str) -> Judgement:
    [found] = [j for j in judged if j.metric == metric]
    return found


def step_time(factor: float, noise: float = 0.002) -> Judgement:
    tonight = results(some_runs(factor, noise, seed=1), again=some_runs(factor, noise, seed=2))
    return of(compare_with(baseline(some_runs(noise=noise)), PLAN, tonight), "step_seconds")


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.0, Verdict.PASS), (1.01, Verdict.PASS), (1.05, Verdict.REGRESSED), (0.94, Verdict.IMPROVED)],
)
def test_step_time_against_a_quiet_baseline(factor: float, verdict: Verdict) -> None:
    found = step_time(factor)
    assert found.verdict is verdict
    assert found.smallest_detectable == pytest.approx(1.03)  # it sees less, but less does not matter
    assert found.false_alarm_rate == GATE.false_alarm_rate
    assert found.effect is not None and found.effect.estimate == pytest.approx(factor, rel=0.01)


def test_a_change_just_as_large_as_matters_is_found_nine_times_in_ten() -> None:
    accepted = baseline(some_runs(noise=0.003))
    found = 0
    for seed in range(60):
        tonight = results(some_runs(1.03, 0.003, seed=[1, seed]), again=some_runs(1.03, 0.003, seed=[2, seed]))
        found += of(compare_with(accepted, PLAN, tonight), "step_seconds").verdict is Verdict.REGRESSED
    assert found >= 49  # 0.9 of 60, less two standard errors


def test_a_test_that_could_not_have_seen_it_is_no_pass() -> None:
    assert step_time(1.0, noise=0.05).verdict is Verdict.INCONCLUSIVE
    few = compare_with(baseline(some_runs(count=2)), PLAN, results(some_runs(count=2)))
    assert of(few, "step_seconds").verdict is Verdict.INCONCLUSIVE
    one = compare_with(baseline(some_runs(count=1)), PLAN, results(some_runs(count=1)))
    assert of(one, "step_seconds").verdict is Verdict.INCONCLUSIVE


def test_memory_that_never_varies_passes_and_its_growth_is_seen() -> None:
    runs = some_runs()
    assert of(compare_with(baseline(runs), PLAN, results(runs)), "peak_resident_bytes").verdict is Verdict.PASS
    grown = []
    for run in runs:
        assert run.memory is not None
        memory = run.memory.model_copy(update={"peak_resident_bytes": int(run.memory.peak_resident_bytes * 1.1)})
        grown.append(run.model_copy(update={"memory": memory}))
    judged = compare_with(baseline(runs), PLAN, results(grown, again=grown))
    assert of(judged, "peak_resident_bytes").verdict is Verdict.REGRESSED


@pytest.mark.parametrize(("new", "verdict"), [(475, Verdict.PASS), (300, Verdict.REGRESSED), (498, Verdict.IMPROVED)])
def test_success_against_the_baseline(new: int, verdict: Verdict) -> None:
    tonight = results(some_runs(), new, successes_again=new)
    judged = compare_with(baseline(some_runs(), 475), PLAN, tonight)
    found = of(judged, "success_rate libero_object")
    if verdict is Verdict.PASS:  # at 1 in 1000 over the family, 500 episodes see 7 points, not 5
        assert found.verdict is Verdict.INCONCLUSIVE
        assert found.smallest_detectable is not None and 0.05 < found.smallest_detectable < 0.1
    else:
        assert found.verdict is verdict


def test_nothing_accepted_is_told_per_family() -> None:
    judged = compare_with(None, PLAN, results(some_runs(), 400))
    assert [(j.metric, j.verdict) for j in judged] == [
        ("time", Verdict.NO_BASELINE),
        ("memory", Verdict.NO_BASELINE),
        ("success", Verdict.NO_BASELINE),
    ]


def test_unlike_hardware_workload_and_protocol_are_incomparable_and_named() -> None:
    accepted = baseline(some_runs(), 475)
    elsewhere = PLAN.model_copy(update={"hardware_key": "other"})
    [found] = compare_with(accepted, elsewhere, results(some_runs()))
    assert found.verdict is Verdict.INCOMPARABLE and "other" in found.reason
    heavier = [
        r.model_copy(
            update={"run": r.run.model_copy(update={"cell": r.run.cell.model_copy(update={"micro_batch": 16})})}
        )
        for r in some_runs()
    ]
    [found] = compare_with(accepted, PLAN, results(heavier))
    assert found.verdict is Verdict.INCOMPARABLE and "micro_batch 8 → 16" in found.reason
    arm = an_arm("pi0-zero3-seed0")
    unlike = arm.model_copy(update={"protocol": arm.protocol.model_copy(update={"replan_steps": 5})})
    new = results([], 475)
    judged = compare_with(accepted, PLAN, Results("r", "", [], arms=[unlike], episodes=new.episodes))
    assert [j.verdict for j in judged] == [Verdict.INCOMPARABLE] and "replan_steps 8 → 5" in judged[0].reason
    physics = MACHINE.model_copy(update={"versions": {**MACHINE.versions, "mujoco": "3.4.0"}})
    moved = arm.model_copy(update={"fingerprint": physics})
    judged = compare_with(accepted, PLAN, Results("r", "", [], arms=[moved], episodes=new.episodes))
    assert "mujoco 3.3.2 → 3.4.0" in judged[0].reason


def test_what_the_baseline_does_not_hold_has_no_baseline() -> None:
    accepted = baseline(some_runs())
    ddp = [a_run("ddp", repeat=r) for r in range(3)]
    assert [j.verdict for j in compare_with(accepted, PLAN, results(ddp))] == [Verdict.NO_BASELINE]


def test_runs_that_never_settled_are_unsteady() -> None:
    runs = [r.model_copy(update={"speed": a_speed(0.3, r.run, "SLOWING")}) for r in some_runs()]
    judged = compare_with(baseline(some_runs()), PLAN, results(runs))
    assert of(judged, "step_seconds").verdict is Verdict.UNSTEADY


def test_an_old_baseline_is_stale_whatever_it_would_have_said() -> None:
    old = baseline(some_runs()).model_copy(update={"expires_days": 10})
    judged = compare_with(old, PLAN, results(some_runs(1.2), again=some_runs(1.2)))
    assert {j.verdict for j in judged} == {Verdict.STALE}
    assert "would be REGRESSED" in of(judged, "step_seconds").reason


def test_the_false_alarm_rate_is_over_the_whole_family() -> None:
    plan = PLAN.model_copy(update={"gate": GATE.model_copy(update={"false_alarm_rate": 0.2})})
    alarms, trials = 0, 60
    for trial in range(trials):
        old, new = (
            [
                run
                for i, key in enumerate(KINDS)
                for run in some_runs(noise=0.1, seed=[trial, i, side], count=6, key=key)
            ]
            for side in (0, 1)
        )
        judged = compare_with(baseline(old), plan, results(new, again=new))
        assert sum(j.metric == "step_seconds" for j in judged) == len(KINDS)
        alarms += any(j.verdict is Verdict.REGRESSED for j in judged)
    assert alarms / trials < 0.32  # 0.2 and 2.3 standard errors; without Holm it would be 0.59


def test_fields_are_named_with_their_path() -> None:
    assert differing_fields({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2}) == ["a.b 1 → 3"]
    assert differing_fields({"a": 1}, {}) == ["a 1 → None"]


def test_exact_figures_need_one_run_and_no_test() -> None:
    runs = [a_run("zero3", RunKind.LEARNING)]
    assert runs[0].checkpoint_bytes is not None
    grown = [runs[0].model_copy(update={"checkpoint_bytes": runs[0].checkpoint_bytes * 2})]
    assert of(compare_with(baseline(runs), PLAN, results(runs)), "checkpoint_bytes").verdict is Verdict.PASS
    judged = compare_with(baseline(runs), PLAN, results(grown, again=grown))
    assert of(judged, "checkpoint_bytes").verdict is Verdict.REGRESSED
    assert of(compare_with(baseline(grown), PLAN, results(runs)), "checkpoint_bytes").verdict is Verdict.IMPROVED


def test_learning_runs_gate_checkpoints_and_not_speed() -> None:
    runs = [a_run("zero3", RunKind.LEARNING, repeat=s) for s in range(3)]
    judged = compare_with(baseline(runs), PLAN, results(runs))
    assert {j.metric for j in judged} == {"checkpoint_save_seconds", "checkpoint_bytes"}


# --- the second stage --------------------------------------------------------------------------------------


def test_nothing_is_called_worse_before_fresh_processes_say_so() -> None:
    accepted, slow = baseline(some_runs()), results(some_runs(1.1, seed=1))
    judged = of(compare_with(accepted, PLAN, slow), "step_seconds")
    assert judged.verdict is Verdict.INCONCLUSIVE and "not yet measured again" in judged.reason
    assert [(a.subject, a.metric, a.kind) for a in first_stage_alarms(accepted, PLAN, slow)] == [
        ("pi0-zero3", "step_seconds", RunKind.TIMING)
    ]
    assert first_stage_alarms(accepted, PLAN, results(some_runs(seed=1))) == []
    assert first_stage_alarms(None, PLAN, slow) == []


def test_both_stages_stay_in_the_record() -> None:
    tonight = results(some_runs(1.1, seed=1), again=some_runs(1.12, seed=2, count=3))
    judged = of(compare_with(baseline(some_runs()), PLAN, tonight), "step_seconds")
    assert judged.verdict is Verdict.REGRESSED
    assert judged.effect is not None and judged.effect.estimate == pytest.approx(1.1, rel=0.01)
    again = judged.confirmation
    assert again is not None and again.reproduced and again.n == 3
    assert again.effect is not None and again.effect.estimate == pytest.approx(1.12, rel=0.01)


def test_an_alarm_that_is_not_reproduced_is_no_regression() -> None:
    tonight = results(some_runs(1.1, seed=1), again=some_runs(1.0, seed=2))
    judged = of(compare_with(baseline(some_runs()), PLAN, tonight), "step_seconds")
    assert judged.verdict is Verdict.PASS and "not reproduced" in judged.reason
    assert judged.confirmation is not None and not judged.confirmation.reproduced


def test_lost_success_is_confirmed_by_fresh_episodes() -> None:
    accepted = baseline(some_runs(), 475)
    lost = compare_with(accepted, PLAN, results(some_runs(), 300, successes_again=470))
    assert of(lost, "success_rate libero_object").verdict is not Verdict.REGRESSED
    alone = compare_with(accepted, PLAN, results(some_runs(), 300))
    assert of(alone, "success_rate libero_object").verdict is Verdict.INCONCLUSIVE


@settings(max_examples=25, deadline=None)
@given(st.floats(0.8, 1.4), st.floats(1.0, 1.5), st.integers(0, 5), st.sampled_from([0.002, 0.02]))
def test_a_slower_candidate_never_gets_a_better_verdict(factor: float, more: float, seed: int, noise: float) -> None:
    rank = [Verdict.IMPROVED, Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.REGRESSED]

    def verdict(times: float) -> int:
        tonight = results(some_runs(times, noise, seed=seed), again=some_runs(times, noise, seed=seed + 10))
        return rank.index(of(compare_with(baseline(some_runs(noise=noise)), PLAN, tonight), "step_seconds").verdict)

    assert verdict(factor) <= verdict(factor * more)


def test_a_gate_that_no_longer_runs_a_cell_is_not_green() -> None:
    accepted = baseline([*some_runs(), *some_runs(key="ddp")])
    kept = [run for run in PLAN.runs if run.cell.label == "pi0-zero3"]
    gate = PLAN.model_copy(update={"purpose": "gate", "runs": kept})
    judged = compare_with(accepted, gate, results(some_runs(seed=1)))
    assert [(j.subject, j.verdict) for j in judged if j.metric == "all"] == [("pi0-ddp", Verdict.INCONCLUSIVE)]
    bench = gate.model_copy(update={"purpose": "bench"})
    assert not [j for j in compare_with(accepted, bench, results(some_runs(seed=1))) if j.metric == "all"]


def test_a_doctored_baseline_is_incomparable_whatever_it_holds() -> None:
    accepted = baseline(some_runs())
    cell = accepted.cells[0]
    slower = {name: [value * 1.2 for value in values] for name, values in cell.values.items()}
    doctored = accepted.model_copy(update={"cells": [cell.model_copy(update={"values": slower})]})
    judged = compare_with(doctored, PLAN, results(some_runs(1.15, seed=1)))
    assert [j.verdict for j in judged] == [Verdict.INCOMPARABLE]
    assert "seal" in judged[0].reason


def test_an_ended_entry_is_stale_and_the_others_are_not() -> None:
    accepted = baseline([*some_runs(), *some_runs(key="ddp")])
    why = Expiry(at="2026-02-02T00:00:00+00:00", by="x", reason="new driver")
    ended = expire(accepted, why, only=["pi0-ddp"])
    judged = compare_with(ended, PLAN, results([*some_runs(seed=1), *some_runs(key="ddp", seed=1)]))
    assert {j.verdict for j in judged if j.subject == "pi0-ddp"} == {Verdict.STALE}
    assert Verdict.STALE not in {j.verdict for j in judged if j.subject == "pi0-zero3"}


def test_other_data_is_other_work() -> None:
    moved = []
    for run in some_runs(seed=1):
        assert run.workload is not None
        moved.append(run.model_copy(update={"workload": run.workload.model_copy(update={"data_sha256": "ff"})}))
    [found] = compare_with(baseline(some_runs()), PLAN, results(moved))
    assert found.verdict is Verdict.INCOMPARABLE and "data_sha256" in found.reason


def side_by_side(drift: float, factor: float, seed: int, count: int = 3) -> list[RunRecord]:
    """Two cells on a machine that is slower by `drift` from run to run alike for both; fsdp2 by `factor` besides."""
    rng = np.random.default_rng(seed)
    runs = []
    for repeat in range(count):
        machine = float(np.exp(rng.normal(0, drift)))
        for key, own in (("zero3", 1.0), ("fsdp2", factor), ("zero2", 1.0), ("ddp", 1.0)):
            run = a_run(key, repeat=repeat)
            runs.append(
                run.model_copy(
                    update={"speed": a_speed(0.3 * machine * own * float(np.exp(rng.normal(0, 0.004))), run.run)}
                )
            )
    return runs


def test_the_ratio_to_the_reference_sees_through_a_drifting_machine() -> None:
    """A fifth more in one cell, three processes a night, on a machine whose step times differ by 8 %."""
    accepted = baseline(side_by_side(0.08, 1.0, seed=1))
    tonight = results(side_by_side(0.08, 1.2, seed=2), again=side_by_side(0.08, 1.2, seed=3))
    judged = {(j.subject, j.metric): j.verdict for j in compare_with(accepted, PLAN, tonight)}
    assert judged["pi0-fsdp2", "step_ratio"] is Verdict.REGRESSED
    assert judged["pi0-fsdp2", "step_seconds"] is Verdict.INCONCLUSIVE
    assert judged["pi0-ddp", "step_ratio"] is not Verdict.REGRESSED
    assert ("pi0-zero3", "step_ratio") not in judged
    quiet = results(side_by_side(0.08, 1.0, seed=4))
    assert Verdict.REGRESSED not in {j.verdict for j in compare_with(accepted, PLAN, quiet)}
