"""What one reads while an evaluation runs."""

from __future__ import annotations

from comparison_records import an_episode, some_keys

from harness.evaluate_progress import EvaluationProgress
from harness.plan import PlannedArm
from harness.suite import Evaluation, Scope
from harness.work import ArmEpisodes, Evaluate

KEYS = tuple(some_keys()[:10])
EVALUATION = Evaluation(scopes=[Scope(task_suite="libero_object", tasks=[0, 1])], max_errors=2)


def begun(*arms: str) -> tuple[Evaluate, EvaluationProgress]:
    work = Evaluate(tuple(ArmEpisodes(PlannedArm(name=arm), KEYS) for arm in arms))
    return work, EvaluationProgress(work, [], EVALUATION, confidence=0.95)


def test_an_arm_is_told_with_its_interval_and_others_are_to_come() -> None:
    _, progress = begun("first", "second", "third")
    assert progress.spoken() == ""
    for state, outcome in enumerate(("success", "success", "failure", "error")):
        progress.take(an_episode("first", KEYS[state], outcome))
    assert progress.spoken() == "first 2/3, 67% (21% to 94%), 1 error; 2 arms to come"


def test_of_many_arms_only_the_rates_are_told() -> None:
    arms = [f"seed{number}" for number in range(6)]
    work, progress = begun(*arms)
    for arm in arms[:5]:
        progress.take(an_episode(arm, KEYS[0], "success"))
    assert progress.spoken() == "; ".join(f"{arm} 1/1, 100%" for arm in arms[:5]) + "; 1 arms to come"
    assert work.name == "evaluation of seed0, seed1, seed2, seed3 and 2 more"


def test_errors_end_an_arm_and_say_why() -> None:
    _, progress = begun("first", "second")
    endings = [progress.take(an_episode("first", key, "error", reason="it fell over")) for key in KEYS[:2]]
    assert endings == [frozenset(), frozenset({"first"})]
    assert "ended after 2 errors, the last: it fell over" in progress.spoken()
