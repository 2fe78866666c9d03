from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare.verdict import Alarm
from harness.plan import Plan, RunKind
from harness.planning import CHECKPOINT_STEPS, make_plan
from harness.selection import selected
from harness.suite_file import load_suite
from harness.work import (
    FINAL,
    AskGate,
    AttemptState,
    Evaluate,
    MakeDemonstrations,
    Progress,
    TakeTurns,
    Train,
    next_work,
    remaining_work,
)

FSDP2 = Path(__file__).parents[1] / "suites" / "fsdp2.toml"


def plan(*overrides: str) -> Plan:
    """The main job, but for two repeats one after the other unless told."""
    settings = ["throughput.order=abba", "throughput.repeats=2", *overrides]
    return make_plan("fsdp2", selected(load_suite(FSDP2, settings)), "cpu-test", cuda=False)


def finished(made: Plan) -> Progress:
    return Progress(
        demonstrations_ready=True,
        attempts={run.key: [AttemptState(1, "OK", None)] for run in made.runs},
        evaluated={arm.name: frozenset(made.episodes) for arm in made.arms},
        alarms=(),
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
    assert [part.arm.name for work in left for part in work.arms] == ["pi0-zero3-seed0", "expert", "still"]


def test_an_evaluation_goes_on_with_the_episodes_that_are_left() -> None:
    made = plan()
    progress = finished(made)
    progress.evaluated["expert"] = frozenset(made.episodes[:-2])
    work = next_work(made, progress)
    assert isinstance(work, Evaluate)
    assert [(part.arm.name, part.episodes) for part in work.arms] == [("expert", tuple(made.episodes[-2:]))]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_whatever_fails_the_loop_ends_and_nothing_finished_is_done_again(data: st.DataObject) -> None:
    order, in_vain = data.draw(st.sampled_from(["abba", "turns"])), data.draw(st.integers(0, 2))
    limits = (f"throughput.order={order}", f"throughput.disturbed_repeats={in_vain}")
    made = plan("learning.training_seeds=[0,1]", *limits)
    attempts: dict[str, list[AttemptState]] = {}
    evaluated: dict[str, frozenset] = {}
    ready, tried, done, alarms = False, frozenset(), [], None
    while work := next_work(made, Progress(ready, attempts, evaluated, alarms), tried):
        assert not work.names & tried
        tried |= work.names
        if isinstance(work, MakeDemonstrations):
            ready = data.draw(st.booleans())
        elif isinstance(work, Train | TakeTurns):
            together = isinstance(work, TakeTurns) and len(work.runs) > 1
            for train in work.runs if isinstance(work, TakeTurns) else [work]:
                outcome = data.draw(st.sampled_from([*["OK"] * 8, *sorted(FINAL), "CRASHED", "HUNG"]))
                disturbed = data.draw(st.booleans())
                state = AttemptState(train.attempt, outcome, None, in_turns=together, disturbed=disturbed)
                attempts.setdefault(train.run.key, []).append(state)
        elif isinstance(work, AskGate):
            alarms = tuple(data.draw(st.lists(st.sampled_from(possible_alarms(made)), max_size=3)))
        else:
            for part in work.arms:
                played = part.episodes[: data.draw(st.integers(0, len(part.episodes)))]
                evaluated[part.arm.name] = evaluated.get(part.arm.name, frozenset()) | frozenset(played)
        done += work.names
        # Hypothesis would take a loop that runs out of data to draw for a bad example.
        if len(done) > 200:
            pytest.fail(f"no end: {done[-8:]}")
    assert len(done) == len(set(done))
    most = 2 + len(made.runs) + len(made.confirmations) + len(made.arms)
    assert len({name.removesuffix(" alone") for name in done if " again" not in name}) <= most


# --- what the gate wants to see again ----------------------------------------------------------------------


def possible_alarms(made: Plan) -> list[Alarm]:
    cells = [Alarm(subject=run.cell.label, metric="step_seconds", kind=run.kind) for run in made.runs]
    return cells + [Alarm(subject=arm.name, metric="success_rate libero_object", kind=None) for arm in made.arms]


def test_when_all_is_there_the_gate_is_asked_and_content_with_no_alarm() -> None:
    made = plan()
    assert next_work(made, replace(finished(made), alarms=None)) == AskGate()
    assert next_work(made, replace(finished(made), alarms=None), frozenset({AskGate().name})) is None
    assert next_work(made, finished(made)) is None


def test_the_gate_waits_for_what_is_still_missing() -> None:
    made = plan()
    progress = replace(finished(made), alarms=None)
    del progress.attempts[made.runs[0].key]
    assert isinstance(next_work(made, progress), Train)


def test_an_alarm_of_a_cell_asks_for_as_many_fresh_processes_of_it_alone() -> None:
    made = plan("throughput.order=abba", "throughput.repeats=3")
    alarm = Alarm(subject="pi0-fsdp2", metric="step_seconds", kind=RunKind.TIMING)
    asked = remaining_work(made, replace(finished(made), alarms=(alarm,)))
    assert [work.name for work in asked] == [f"pi0-fsdp2/timing-{repeat}" for repeat in (3, 4, 5)]
    done = {work.name: [AttemptState(1, "OK", None)] for work in asked}
    progress = replace(finished(made), alarms=(alarm,))
    progress.attempts.update(done)
    assert next_work(made, progress) is None


def test_a_ratio_is_measured_again_with_the_reference() -> None:
    made = plan("throughput.order=abba", "throughput.repeats=2")
    alarm = Alarm(subject="pi0-fsdp2", metric="step_ratio", kind=RunKind.TIMING)
    asked = remaining_work(made, replace(finished(made), alarms=(alarm,)))
    assert {work.run.cell.label for work in asked if isinstance(work, Train)} == {"pi0-zero3", "pi0-fsdp2"}


def test_what_alarmed_in_company_is_measured_again_in_company() -> None:
    made = in_turns()
    alarm = Alarm(subject="pi0-fsdp2", metric="step_seconds", kind=RunKind.TIMING)
    first, second = remaining_work(made, replace(finished(made), alarms=(alarm,)))
    assert isinstance(first, TakeTurns) and isinstance(second, TakeTurns)
    assert len(first.runs) == len(second.runs) == 4
    assert {train.run.repeat for train in first.runs} == {2}


def test_checkpoints_are_seen_again_in_a_few_steps_and_success_in_fresh_episodes() -> None:
    made = plan()
    arm = made.arms[0].name
    alarms = (
        Alarm(subject="pi0-zero3", metric="checkpoint_bytes", kind=RunKind.LEARNING),
        Alarm(subject=arm, metric="success_rate libero_object", kind=None),
    )
    training, evaluation = remaining_work(made, replace(finished(made), alarms=alarms))
    assert isinstance(training, Train) and training.run.steps == CHECKPOINT_STEPS
    assert isinstance(evaluation, Evaluate) and [part.arm.name for part in evaluation.arms] == [arm]
    assert {key.seed for key in evaluation.arms[0].episodes} == {made.seed + 1}
    assert evaluation.episodes == len(made.episodes)


def in_turns() -> Plan:
    return plan("throughput.order=turns", "throughput.repeats=2")


def test_a_repeat_of_one_model_is_a_block_that_takes_turns() -> None:
    made = in_turns()
    first, second = remaining_work(made, Progress(demonstrations_ready=True))[:2]
    assert isinstance(first, TakeTurns) and isinstance(second, TakeTurns)
    assert [train.run.cell.label for train in first.runs] == ["pi0-zero3", "pi0-zero2", "pi0-fsdp2", "pi0-ddp"]
    assert [train.run.repeat for train in (*first.runs, *second.runs)] == [0] * 4 + [1] * 4
    assert [train.run.cell.label for train in second.runs] == [t.run.cell.label for t in reversed(first.runs)]
    assert first.names == {train.run.key for train in first.runs}


def test_what_is_left_of_a_block_takes_turns_and_what_is_recorded_is_not_done_again() -> None:
    made = in_turns()
    progress = finished(made)
    block = [run for run in made.runs if run.block == "pi0/1"]
    progress.attempts[block[0].key] = [AttemptState(1, None, None)]
    progress.attempts[block[2].key] = [AttemptState(1, "INTERRUPTED", None, in_turns=True)]
    assert remaining_work(made, progress) == [
        TakeTurns((Train(block[0], 2, None, False), Train(block[2], 2, None, False)))
    ]


def test_out_of_memory_among_others_is_tried_again_alone_and_then_believed() -> None:
    made = in_turns()
    progress, run = finished(made), made.runs[0]
    crowded = AttemptState(1, "OOM", None, in_turns=True)
    progress.attempts[run.key] = [crowded]
    again = next_work(made, progress, frozenset({run.key}))
    assert again == Train(run, 2, None, alone=True)
    progress.attempts[run.key] = [crowded, AttemptState(2, "OOM", None)]
    assert next_work(made, progress) is None


def test_turns_are_the_default_on_cpu_and_one_cell_alone_takes_none() -> None:
    tables = selected(load_suite(FSDP2, ["throughput.order=turns", "throughput.repeats=2"]))
    left_out = tables.model_copy(update={"throughput": tables.throughput.model_copy(update={"order": None})})
    timing = [
        [r.block for r in make_plan("x", left_out, "k", cuda).runs if r.kind == "timing"] for cuda in (False, True)
    ]
    assert timing == [["pi0/0"] * 4 + ["pi0/1"] * 4, [None] * 8]
    only = left_out.model_copy(
        update={"backends": {"zero3": left_out.backends["zero3"]}, "learning": None, "evaluation": None}
    )
    assert {run.block for run in make_plan("x", only, "k", cuda=False).runs} == {None}


# --- blocks that others disturbed ------------------------------------------------------------------------------


def disturbed(made: Plan, *keys: str) -> Progress:
    """All is finished, but runs of these blocks were not calm."""
    progress = finished(made)
    for key in keys:
        progress.attempts[key] = [AttemptState(1, "OK", None, disturbed=True)]
    return progress


def then(progress: Progress, key: str, outcome: str | None = "OK", disturbed: bool = False) -> None:
    attempts = progress.attempts[key]
    attempts.append(AttemptState(len(attempts) + 1, outcome, None, disturbed=disturbed))


@pytest.mark.parametrize("order", ["turns", "abba"])
def test_a_disturbed_block_is_measured_again_whole_and_behind_the_rest(order: str) -> None:
    made = plan(f"throughput.order={order}")
    progress = disturbed(made, "pi0-fsdp2/timing-1")
    del progress.attempts["pi0-ddp/timing-0"]
    first, *left = remaining_work(made, progress)
    assert "pi0-ddp/timing-0" in first.names
    again = [train for work in left for train in (work.runs if isinstance(work, TakeTurns) else [work])]
    block = ["pi0-zero3", "pi0-zero2", "pi0-fsdp2", "pi0-ddp"]
    assert [train.run.cell.label for train in again if isinstance(train, Train)] == block[::-1]
    assert {(train.run.repeat, train.attempt, train.again, train.resume_from) for train in again} == {
        (1, 2, True, None)
    }
    assert len(left) == (1 if order == "turns" else 4)


def test_a_repeat_that_was_calm_is_the_last_one_and_another_block_may_be_repeated_then() -> None:
    made = plan("throughput.order=turns")
    progress = disturbed(made, "pi0-fsdp2/timing-0", "pi0-ddp/timing-1")
    block = [run.key for run in made.runs if run.kind is RunKind.TIMING and run.repeat == 0]
    for key in block:
        then(progress, key)
    [work] = remaining_work(made, progress)
    assert isinstance(work, TakeTurns) and {train.run.repeat for train in work.runs} == {1}


def test_when_a_repeat_was_disturbed_as_well_the_machine_is_taken_as_it_is() -> None:
    made = plan("throughput.order=turns")
    assert made.disturbed_repeats == 1
    progress = disturbed(made, "pi0-fsdp2/timing-0", "pi0-ddp/timing-1")
    for run in made.runs:
        if run.kind is RunKind.TIMING and run.repeat == 0:
            then(progress, run.key, disturbed=run.cell.label == "pi0-zero3")
    assert remaining_work(made, progress) == []
    more = plan("throughput.order=turns", "throughput.disturbed_repeats=2")
    work = next_work(more, progress)
    assert isinstance(work, TakeTurns) and {(train.run.repeat, train.attempt) for train in work.runs} == {(0, 3)}
    assert remaining_work(plan("throughput.disturbed_repeats=0"), disturbed(made, "pi0-fsdp2/timing-0")) == []


def test_runs_one_after_the_other_are_each_measured_again_once() -> None:
    made = plan()
    timed = [run.key for run in made.runs if run.kind is RunKind.TIMING]
    progress, done = disturbed(made, *timed), []
    while (work := next_work(made, progress)) and len(done) < 20:
        assert isinstance(work, Train) and work.again
        done.append((work.run.key, work.attempt))
        then(progress, work.run.key, disturbed=True)
    assert done == [(key, 2) for key in timed if key.endswith("timing-0")]


@pytest.mark.parametrize("place", range(4))
def test_a_run_that_was_crowded_out_makes_its_part_of_a_repeat_alone_and_once(place: int) -> None:
    made = plan("throughput.order=turns")
    block = [run.key for run in made.runs if run.kind is RunKind.TIMING and run.repeat == 0]
    progress, done = disturbed(made, *block), []
    progress.attempts[block[place]].insert(0, AttemptState(0, "OOM", None, in_turns=True))
    while (work := next_work(made, progress)) and len(done) < 20:
        assert isinstance(work, Train | TakeTurns)
        trains = work.runs if isinstance(work, TakeTurns) else [work]
        done.append([train.run.key for train in trains])
        for train in trains:
            then(progress, train.run.key, disturbed=True)
    assert sorted(done) == sorted([[block[place]], block[:place] + block[place + 1 :]])


def test_who_was_crowded_out_does_not_part_the_others() -> None:
    made = plan("throughput.order=turns")
    block = [run.key for run in made.runs if run.kind is RunKind.TIMING and run.repeat == 0]
    progress = finished(made)
    for key in block:
        outcome = "OOM" if key == block[1] else "CRASHED"
        progress.attempts[key] = [AttemptState(1, outcome, None, in_turns=True)]
    together, alone = remaining_work(made, progress)
    assert isinstance(together, TakeTurns) and isinstance(alone, Train)
    assert [train.run.key for train in together.runs] == [block[0], *block[2:]]
    assert alone.run.key == block[1]


def test_a_repeat_that_was_cut_short_is_made_again_for_the_whole_block() -> None:
    made = plan("throughput.order=turns")
    progress = disturbed(made, "pi0-fsdp2/timing-0")
    block = [run.key for run in made.runs if run.kind is RunKind.TIMING and run.repeat == 0]
    then(progress, block[0])
    for key in block[1:]:
        then(progress, key, "INTERRUPTED")
    work = next_work(made, progress)
    assert isinstance(work, TakeTurns) and {train.run.key for train in work.runs} == set(block)


def test_a_repeat_that_crashes_was_in_vain() -> None:
    made = plan("throughput.order=turns")
    progress = disturbed(made, "pi0-fsdp2/timing-0")
    for run in made.runs:
        if run.kind is RunKind.TIMING and run.repeat == 0:
            then(progress, run.key, "CRASHED" if run.cell.label == "pi0-ddp" else "OK")
    assert remaining_work(made, progress) == []


def test_learning_runs_are_never_repeated_for_a_disturbance() -> None:
    made = plan()
    assert remaining_work(made, disturbed(made, *(run.key for run in made.runs if run.kind is RunKind.LEARNING))) == []
