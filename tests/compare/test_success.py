from __future__ import annotations

import pytest
from comparison_records import an_episode, some_episodes, some_keys
from hypothesis import given
from hypothesis import strategies as st

from harness.compare.success import (
    ArmSuccess,
    PairedSuccess,
    arm_success,
    judge_arm,
    judge_control,
    judge_mark,
    judge_pair,
    paired_success,
    pass_mark,
    passes,
)
from harness.compare.verdict import Verdict
from harness.libero.records import EpisodeRecord
from harness.plan import EpisodeKey
from harness.suite import Evaluation, Gate, Scope
from harness.task_suites import TASK_SUITES, TaskSuite

KEYS = some_keys()
GATE = Gate()
EVALUATION = Evaluation(scopes=[Scope(task_suite="libero_object", tasks=[0])])


def many(count: int, task_suite: TaskSuite = "libero_object") -> list[EpisodeKey]:
    return [EpisodeKey(task_suite=task_suite, task=i // 50, initial_state=i % 50, seed=7) for i in range(count)]


def arm(episodes: list[EpisodeRecord], planned: int | None = None) -> ArmSuccess:
    return arm_success(episodes[0].arm, episodes, len(episodes) if planned is None else planned, 0.95)


def whole(old: list[EpisodeRecord], new: list[EpisodeRecord]) -> PairedSuccess:
    return paired_success(("pi0-zero3", "pi0-fsdp2"), [(old, new)], 0.95)[0]


def test_errors_and_uncovered_episodes_are_in_no_rate() -> None:
    episodes = some_episodes("a", KEYS[:10], 5)
    episodes += [an_episode("a", KEYS[10], "error"), an_episode("a", KEYS[11], "uncovered")]
    [rate] = arm(episodes).rates
    assert (rate.successes, rate.valid, rate.errors, rate.uncovered) == (5, 10, 1, 1)
    assert rate.rate is not None and rate.rate.estimate == 0.5


def test_no_valid_episode_is_no_rate_rather_than_zero() -> None:
    [rate] = arm([an_episode("a", KEYS[0], "error")]).rates
    assert rate.rate is None


def test_the_average_needs_all_four_task_suites() -> None:
    four = [e for suite in TASK_SUITES for e in some_episodes("a", many(4, suite), 2)]
    assert arm(four).average == 0.5
    assert arm([e for e in four if e.key.task_suite != "libero_10"]).average is None
    spoilt = [an_episode("a", e.key, "error") if e.key.task_suite == "libero_goal" else e for e in four]
    assert arm(spoilt).average is None


def test_pairs_need_the_same_key_scene_and_protocol() -> None:
    old = some_episodes("old", KEYS[:6], 3)
    new = some_episodes("new", KEYS[:6], 6)
    new[0] = an_episode("new", KEYS[0], "success", scene_sha256="other")
    new[1] = an_episode("new", KEYS[1], "success", protocol="other")
    new[2] = an_episode("new", KEYS[2], "error")
    found = whole(old, new)
    assert found.pairs.model_dump() == {"both": 0, "only_reference": 0, "only_candidate": 3, "neither": 0}
    assert found.unpaired == 6


def test_each_task_suite_is_shown_beside_the_whole() -> None:
    found = paired_success(("a", "b"), [(some_episodes("a", KEYS, 5), some_episodes("b", KEYS, 6))], 0.95)
    assert [p.task_suite for p in found] == ["all", *TASK_SUITES]
    assert found[0].pairs.n == sum(p.pairs.n for p in found[1:])


def test_many_like_pairs_show_that_success_is_kept_and_few_do_not() -> None:
    keys = many(500)
    kept = judge_pair(whole(some_episodes("a", keys, 450), some_episodes("b", keys, 451)), GATE)
    assert kept.verdict is Verdict.PASS and "two checkpoints" in kept.reason
    few = judge_pair(whole(some_episodes("a", keys[:10], 9), some_episodes("b", keys[:10], 9)), GATE)
    assert few.verdict is Verdict.INCONCLUSIVE
    assert few.smallest_detectable is not None and few.smallest_detectable > 0.05


def test_more_success_is_an_improvement() -> None:
    keys = many(200)
    assert (
        judge_pair(whole(some_episodes("a", keys, 100), some_episodes("b", keys, 150)), GATE).verdict
        is Verdict.IMPROVED
    )


def test_less_success_of_one_checkpoint_says_nothing_of_the_backend_yet() -> None:
    keys = many(200)
    found = judge_pair(whole(some_episodes("a", keys, 150), some_episodes("b", keys, 100)), GATE)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "3 training seeds" in found.reason


@pytest.mark.parametrize(("seeds", "verdict"), [(2, Verdict.INCONCLUSIVE), (3, Verdict.REGRESSED)])
def test_less_success_over_three_seeds_is_a_regression(seeds: int, verdict: Verdict) -> None:
    keys = many(200)
    sides = [(some_episodes("a", keys, 150 + s), some_episodes("b", keys, 100)) for s in range(seeds)]
    found = paired_success(("a", "b"), sides, 0.95)[0]
    assert found.training_seeds == seeds
    assert judge_pair(found, GATE).verdict is verdict


def test_no_pair_at_all_is_inconclusive() -> None:
    old, new = some_episodes("a", KEYS[:3], 1), some_episodes("b", KEYS[3:6], 1)
    assert judge_pair(whole(old, new), GATE).verdict is Verdict.INCONCLUSIVE
    assert paired_success(("a", "b"), [], 0.95) == []


def test_still_must_never_succeed() -> None:
    assert judge_control(arm(some_episodes("still", KEYS, 0))).verdict is Verdict.PASS
    assert judge_control(arm(some_episodes("still", KEYS, 1))).verdict is Verdict.FAILED


def test_the_expert_must_succeed_where_it_has_a_skill() -> None:
    uncovered = [an_episode("expert", key, "uncovered") for key in KEYS[10:]]
    assert judge_control(arm(some_episodes("expert", KEYS[:10], 8) + uncovered)).verdict is Verdict.PASS
    assert judge_control(arm(some_episodes("expert", KEYS[:10], 7) + uncovered)).verdict is Verdict.FAILED
    assert judge_control(arm(uncovered)).verdict is Verdict.INCONCLUSIVE


def test_too_many_errors_and_missing_episodes_are_told() -> None:
    assert judge_arm(arm(some_episodes("a", KEYS, 3)), EVALUATION) == []
    spoilt = some_episodes("a", KEYS[:8], 3) + [an_episode("a", key, "error") for key in KEYS[8:10]]
    assert [j.verdict for j in judge_arm(arm(spoilt), EVALUATION)] == [Verdict.FAILED]
    assert [j.verdict for j in judge_arm(arm(some_episodes("a", KEYS[:8], 3), planned=10), EVALUATION)] == [
        Verdict.INCONCLUSIVE
    ]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.floats(0.01, 1.0), st.data())
def test_what_is_sure_of_a_mark_no_outcome_of_the_rest_changes(
    won: int, lost: int, left: int, mark: float, data: st.DataObject
) -> None:
    sure = passes(won, won + lost, left, mark)
    more_won = data.draw(st.integers(0, left))
    more_lost = data.draw(st.integers(0, left - more_won))  # the others end in errors
    if sure is not None and won + lost + more_won + more_lost:
        assert passes(won + more_won, won + lost + more_won + more_lost, 0, mark) is sure


def test_it_is_sure_as_soon_as_it_can_be() -> None:
    assert [passes(won, won, 10 - won, 0.7) for won in range(5, 9)] == [None, None, True, True]
    assert [passes(0, lost, 10 - lost, 0.7) for lost in range(2, 5)] == [None, None, False]
    assert passes(0, 0, 0, 0.5) is None


def test_a_mark_is_judged_and_what_was_left_out_on_purpose_is_not_missing() -> None:
    short = arm(some_episodes("a", KEYS[:8], 8), planned=10)
    early = EVALUATION.model_copy(update={"pass_mark": 0.8, "stop_early": True})
    assert judge_mark(short, 0.8).verdict is Verdict.PASS
    assert "whatever the 2 that were not run would give" in judge_mark(short, 0.8).reason
    assert judge_mark(short, 0.9).verdict is Verdict.INCONCLUSIVE
    assert judge_mark(arm(some_episodes("a", KEYS[:8], 5), planned=10), 0.8).verdict is Verdict.FAILED
    assert judge_arm(short, early) == []
    assert [j.verdict for j in judge_arm(short, early.model_copy(update={"pass_mark": 0.9}))] == [Verdict.INCONCLUSIVE]
    assert [j.verdict for j in judge_arm(short, early.model_copy(update={"stop_early": False}))] == [
        Verdict.INCONCLUSIVE
    ]


def test_blinded_arms_have_no_mark() -> None:
    strict = EVALUATION.model_copy(update={"pass_mark": 0.9})
    assert pass_mark("pi0-ddp-seed0", strict) == 0.9
    assert pass_mark("pi0-ddp-seed0:no-images", strict) is None
    assert pass_mark("pi0-ddp-seed0:wrong-instruction", strict) is None
