from __future__ import annotations

from dataclasses import replace

import pytest
from comparison_records import a_failed_run, a_plan, a_run, some_results, some_steps

from harness.compare.baseline import Acceptance, accept
from harness.compare.comparison import Comparison, compare
from harness.compare.results import Results
from harness.compare.verdict import Judgement, Verdict
from harness.errors import ExitCode
from harness.plan import PlannedArm, RunKind, Unsupported
from harness.train.facts import ShardBytes
from harness.train.records import Outcome

PLAN = a_plan()


def answered(results: Results) -> Comparison:
    return compare(PLAN, results, None, [])


def judged(comparison: Comparison, question: str) -> dict[str, Judgement]:
    return {j.subject: j for j in comparison.judgements if j.question == question}


def test_a_whole_result_answers_every_question() -> None:
    found = answered(some_results(PLAN))
    speed = judged(found, "speed")
    assert set(speed) == {f"pi0-{key} vs pi0-zero3" for key in ("zero2", "fsdp2", "ddp")}
    assert speed["pi0-fsdp2 vs pi0-zero3"].verdict is Verdict.IMPROVED
    assert {j.verdict for q in ("fairness", "parity", "sharding", "control") for j in judged(found, q).values()} == {
        Verdict.PASS
    }
    assert found.exit_code is ExitCode.NOT_SHOWN  # no baseline, and few episodes
    assert Comparison.model_validate_json(found.model_dump_json()) == found


def test_everything_shown_ends_with_zero() -> None:
    plan = a_plan(arms=[], episodes=[], evaluation=None)
    runs = [run for run in plan.runs if run.kind is RunKind.TIMING]
    plan = plan.model_copy(update={"runs": runs})
    results = some_results(plan)
    same = [run.model_copy(update={"started_at": "2026-03-01T10:00:00+00:00"}) for run in results.runs]
    acceptance = Acceptance(result="r", at="2026-02-28T10:00:00+00:00", by="x", reason="y", command="z")
    # the very same figures: no noise at all, so any change could have been seen
    flat = []
    for run in same:
        first = a_run(run.run.cell.label.removeprefix("pi0-"))
        flat.append(run.model_copy(update={"speed": first.speed, "memory": first.memory}))
    results = replace(results, runs=flat)
    found = compare(plan, results, accept(plan, results, None, acceptance), [])
    assert {j.verdict for j in found.judgements} <= {Verdict.PASS, Verdict.IMPROVED}
    assert found.exit_code is ExitCode.OK


def test_what_is_done_blind_is_counted_and_compared_with_nothing() -> None:
    results = some_results(PLAN)
    seeing = [arm for arm in PLAN.arms if arm.run_key is not None]
    blind = [arm.model_copy(update={"name": f"{arm.name}:no-images"}) for arm in seeing]
    names = {arm.name for arm in seeing}
    more = [
        episode.model_copy(update={"arm": f"{episode.arm}:no-images", "outcome": "failure"})
        for episode in results.episodes
        if episode.arm in names
    ]
    plan = PLAN.model_copy(update={"arms": [*blind, *PLAN.arms]})
    found = compare(plan, replace(results, episodes=[*more, *results.episodes]), None, [])
    assert judged(found, "success") == judged(answered(results), "success")
    assert {arm.arm for arm in found.arms} >= {arm.name for arm in blind}


def test_an_unsupported_cell_spoils_nothing() -> None:
    results = some_results(PLAN)
    plan = PLAN.model_copy(update={"unsupported": [Unsupported(label="pi0-fsdp", reason="not on CPU")]})
    assert compare(plan, results, None, []).judgements == answered(results).judgements


@pytest.mark.parametrize("outcome", [Outcome.OOM, Outcome.CRASHED, Outcome.HUNG, Outcome.DIVERGED])
def test_a_failed_run_fails_the_comparison(outcome: Outcome) -> None:
    results = some_results(PLAN)
    runs = [a_failed_run("ddp", outcome, 1) if r.run.key == "pi0-ddp/timing-1" else r for r in results.runs]
    found = answered(replace(results, runs=runs))
    assert judged(found, "run")["pi0-ddp/timing-1"].verdict is Verdict.FAILED
    assert found.exit_code is ExitCode.FAILED
    assert judged(found, "speed")["pi0-ddp vs pi0-zero3"].verdict is Verdict.INCONCLUSIVE  # one pair is left


def test_runs_that_have_not_ended_are_not_shown_rather_than_failed() -> None:
    results = some_results(PLAN)
    found = answered(replace(results, runs=results.runs[:4]))
    assert {j.verdict for j in judged(found, "run").values()} == {Verdict.INCONCLUSIVE}
    assert found.exit_code is ExitCode.NOT_SHOWN


def test_nothing_run_yet_is_judged_too() -> None:
    found = answered(Results("r", "", []))
    assert found.exit_code is ExitCode.NOT_SHOWN
    assert all(j.verdict not in (Verdict.PASS, Verdict.IMPROVED) for j in found.judgements)


def test_unlike_cells_get_no_speedup() -> None:
    results = some_results(PLAN)
    runs = []
    for run in results.runs:
        assert run.in_force is not None
        unclipped = run.in_force.model_copy(update={"clip": 0.0})
        runs.append(run.model_copy(update={"in_force": unclipped}) if "zero2" in run.run.key else run)
    found = answered(replace(results, runs=runs))
    verdicts = {subject: j.verdict for subject, j in judged(found, "speed").items()}
    assert verdicts["pi0-zero2 vs pi0-zero3"] is Verdict.INCOMPARABLE
    assert verdicts["pi0-fsdp2 vs pi0-zero3"] is Verdict.IMPROVED
    assert "gradient clipping" in judged(found, "fairness")["pi0-zero2 vs pi0-zero3"].reason
    beside = {(s.reference, s.candidate): s.comparable for s in found.other_speedups}
    assert beside == {("pi0-zero2", "pi0-fsdp2"): False, ("pi0-zero2", "pi0-ddp"): False}


def test_speed_is_credited_only_with_parity() -> None:
    results = some_results(PLAN)
    plain = {s.candidate: s.reservations for s in answered(results).speedups}
    assert plain["pi0-zero2"] == ["LIBERO success not measured"]
    steps = {**results.steps, "pi0-fsdp2/learning-0": some_steps(200, drift=2.0)}
    found = {s.candidate: s.reservations for s in answered(replace(results, steps=steps)).speedups}
    assert "loss parity not shown" in found["pi0-fsdp2"]
    assert "loss parity not shown" not in found["pi0-zero2"]


def test_a_cell_that_does_not_shard_is_found_out() -> None:
    results = some_results(PLAN)
    whole = ShardBytes(parameter_bytes=24_000_000, gradient_bytes=1, optimizer_bytes=1)
    runs = []
    for run in results.runs:
        assert run.memory is not None
        memory = run.memory.model_copy(update={"shards": [whole, whole]})
        runs.append(run.model_copy(update={"memory": memory}) if "fsdp2" in run.run.key else run)
    found = judged(answered(replace(results, runs=runs)), "sharding")
    assert set(found) == {"pi0-zero3", "pi0-zero2", "pi0-fsdp2"}
    assert (found["pi0-fsdp2"].verdict, found["pi0-fsdp2"].value) == (Verdict.INCOMPARABLE, 1.0)


def test_a_spoilt_control_fails_the_comparison() -> None:
    results = some_results(PLAN)
    episodes = [e.model_copy(update={"outcome": "success"}) if e.arm == "still" else e for e in results.episodes]
    assert answered(replace(results, episodes=episodes)).exit_code is ExitCode.FAILED


def test_checkpoints_given_by_hand_are_rated_and_not_paired() -> None:
    arms = [PlannedArm(name="mine", checkpoint="export"), PlannedArm(name="still")]
    plan = PLAN.model_copy(update={"arms": arms})
    results = some_results(PLAN)
    episodes = [e.model_copy(update={"arm": "mine"}) for e in results.episodes if e.arm == "pi0-zero3-seed0"]
    found = compare(plan, replace(results, episodes=episodes), None, [])
    assert found.success_pairs == []
    assert found.arms[0].rates


def test_a_suite_without_timing_compares_its_learnt_cells() -> None:
    runs = [run for run in PLAN.runs if run.kind is RunKind.LEARNING]
    plan = PLAN.model_copy(update={"runs": runs, "reference": None})
    found = compare(plan, some_results(plan), None, [])
    assert found.speedups == []
    assert [(p.reference, p.candidate, p.kind) for p in found.parity] == [("pi0-zero3", "pi0-fsdp2", "learning")]
    assert found.success_pairs[0].candidate == "pi0-fsdp2"
