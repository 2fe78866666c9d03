from __future__ import annotations

import pytest
from comparison_records import a_plan, an_arm, an_episode

from harness.compare.baseline import TaskCount
from harness.compare.results import Results
from harness.compare.worse_policies import RecordedArm, policy_rows, thinned_row
from harness.libero.records import EpisodeRecord
from harness.plan import EpisodeKey, Plan

PLAN: Plan = a_plan(repeats=3)
GOOD, BAD, SLIGHT = "expert", "expert:wrong_object=0.5", "expert:noise=0.1"


def counts(successes: int, valid: int, tasks: int = 10) -> RecordedArm:
    each = [TaskCount(task_suite="libero_object", task=t, successes=successes, valid=valid) for t in range(tasks)]
    return RecordedArm("expert", "libero_object", each)


def played(arm: str, successes: int) -> list[EpisodeRecord]:
    """Ten tasks of ten episodes each, so many of which succeed."""
    keys = [
        EpisodeKey(task_suite="libero_object", task=task, initial_state=state, seed=7)
        for task in range(10)
        for state in range(10)
    ]
    return [an_episode(arm, key, "success" if key.initial_state < successes else "failure") for key in keys]


def results(**arms: int) -> Results:
    names = {"good": GOOD, "bad": BAD, "slight": SLIGHT}
    episodes = [episode for name, successes in arms.items() for episode in played(names[name], successes)]
    return Results("r", "", [], arms=[an_arm(names[name]) for name in arms], episodes=episodes)


def test_a_policy_that_loses_twice_what_can_be_seen_is_found() -> None:
    found = thinned_row(counts(47, 50), PLAN, nights=40, seed=3)
    assert found is not None
    assert found.called >= 38


def test_a_rate_without_room_for_such_a_fall_is_left_out() -> None:
    assert thinned_row(counts(1, 3, tasks=1), PLAN, nights=5, seed=3) is None


def test_a_graded_expert_in_the_experts_place_is_found() -> None:
    rows = {found.plant: found for found in policy_rows([results(good=10, bad=5)], PLAN, nights=40, seed=3)}
    bad = rows[f"{BAD} (50%)"]
    assert (bad.where, bad.expected, bad.called, bad.holds) == ("expert, libero_object", "caught", 40, True)
    quiet = rows["none (A/A)"]
    assert (quiet.where, quiet.expected) == (f"{BAD}, libero_object", "quiet")
    assert quiet.called <= 1


def test_a_difference_that_cannot_be_seen_is_no_promise() -> None:
    rows = {found.plant: found for found in policy_rows([results(good=10, slight=9)], PLAN, nights=20, seed=3)}
    slight = rows[f"{SLIGHT} (90%)"]
    assert slight.called < 20
    assert slight.holds is None


def test_without_the_expert_a_graded_one_stands_in_for_nothing() -> None:
    rows = policy_rows([results(bad=5)], PLAN, nights=5, seed=3)
    assert not [found for found in rows if found.where.startswith("expert, ")]


@pytest.mark.parametrize("found", [[], [Results("r", "", [])]])
def test_nothing_on_record_gives_no_row(found: list[Results]) -> None:
    assert policy_rows(found, PLAN, nights=5, seed=3) == []


def test_of_several_results_the_newest_with_episodes_counts() -> None:
    newest, older = results(good=10, bad=5), results(good=10, slight=9)
    found = policy_rows([older, newest, Results("r", "", [])], PLAN, nights=5, seed=3)
    assert found == policy_rows([newest], PLAN, nights=5, seed=3)
