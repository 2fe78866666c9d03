from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.plan import Plan, make_plan
from harness.suite_file import load_suite
from harness.work import (
    FINAL,
    AttemptState,
    Evaluate,
    MakeDemonstrations,
    Progress,
    Train,
    next_work,
    remaining_work,
)

FSDP2 = Path(__file__).parents[1] / "suites" / "fsdp2.toml"


def plan(*overrides: str) -> Plan:
    return make_plan("fsdp2", load_suite(FSDP2, list(overrides)), "cpu-test", cuda=False)


def finished(made: Plan) -> Progress:
    return Progress(
        demonstrations_ready=True,
        attempts={run.key: [AttemptState(1, "OK", None)] for run in made.runs},
        evaluated={arm.name: frozenset(made.episodes) for arm in made.arms},
    )


def test_work_comes_in_order_and_ends() -> None:
    made = plan()
    assert isinstance(next_work(made, Progress()), MakeDemonstrations)
    first = next_work(made, Progress(demonstrations_ready=True))
    assert isinstance(first, Train)
    assert (first.run, first.attempt, first.resume_from) == (made.runs[0], 1, None)
    assert next_work(made, finished(made)) is None


@pytest.mark.parametrize("outcome", ["CRASHED", "HUNG", "INTERRUPTED", None])
def test_an_unfinished_run_goes_on_from_its_last_checkpoint(outcome: str | None) -> None:
    made = plan()
    run = made.runs[-1]
    progress = finished(made)
    progress.attempts[run.key] = [AttemptState(1, outcome, "checkpoint/step-400"), AttemptState(2, outcome, None)]
    work = next_work(made, progress)
    assert work == Train(run, 3, "checkpoint/step-400")
    assert next_work(made, progress, frozenset({run.key})) is None


@pytest.mark.parametrize("outcome", sorted(FINAL - {"OK"}))
def test_a_run_that_would_only_fail_again_is_left_and_its_checkpoint_is_not_evaluated(outcome: str) -> None:
    made = plan()
    run = made.runs[-1]
    progress = replace(finished(made), evaluated={})
    progress.attempts[run.key] = [AttemptState(1, outcome, None)]
    left = remaining_work(made, progress)
    assert all(isinstance(work, Evaluate) for work in left)
    assert [work.name for work in left] == ["pi0-zero3-seed0", "expert", "still"]


def test_an_evaluation_goes_on_with_the_episodes_that_are_left() -> None:
    made = plan()
    progress = finished(made)
    progress.evaluated["expert"] = frozenset(made.episodes[:-2])
    work = next_work(made, progress)
    assert isinstance(work, Evaluate)
    assert work.episodes == tuple(made.episodes[-2:])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_whatever_fails_the_loop_ends_and_nothing_finished_is_done_again(data: st.DataObject) -> None:
    made = plan("learning.training_seeds=[0,1]")
    attempts: dict[str, list[AttemptState]] = {}
    evaluated: dict[str, frozenset] = {}
    ready, tried, done = False, frozenset(), []
    while work := next_work(made, Progress(ready, attempts, evaluated), tried):
        assert work.name not in tried
        tried |= {work.name}
        if isinstance(work, MakeDemonstrations):
            ready = data.draw(st.booleans())
        elif isinstance(work, Train):
            outcome = data.draw(st.sampled_from([*sorted(FINAL), "CRASHED", "HUNG"]))
            attempts.setdefault(work.run.key, []).append(AttemptState(work.attempt, outcome, None))
        else:
            evaluated[work.arm.name] = frozenset(work.episodes[: data.draw(st.integers(0, len(work.episodes)))])
        done.append(work.name)
    assert len(done) == len(set(done)) <= 1 + len(made.runs) + len(made.arms)
