from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import BadInput
from harness.plan import (
    FINAL,
    AttemptState,
    Evaluate,
    MakeDemonstrations,
    Plan,
    Progress,
    Train,
    make_plan,
    next_work,
    remaining_work,
)
from harness.suite_file import load_suite

FSDP2 = Path(__file__).parents[1] / "suites" / "fsdp2.toml"


def plan(*overrides: str) -> Plan:
    return make_plan("fsdp2", load_suite(FSDP2, list(overrides)), "cpu-test", cuda=False)


def test_timed_runs_stand_in_abba_order() -> None:
    timed = [(run.cell.label, run.repeat) for run in plan().runs if run.kind == "timing"]
    forward = ["pi0-zero3", "pi0-zero2", "pi0-fsdp2", "pi0-ddp"]
    assert timed == [(label, 0) for label in forward] + [(label, 1) for label in reversed(forward)]


def test_settings_are_layered_and_the_backend_wins() -> None:
    runs = plan("models.pi0.micro_batch=4", "backends.fsdp2.micro_batch=2", "backends.fsdp2.optimizer.lr=0.5").runs
    by_label = {run.cell.label: run.cell for run in runs if run.kind == "timing"}
    assert by_label["pi0-zero3"].micro_batch == 4
    assert by_label["pi0-fsdp2"].micro_batch == 2
    assert by_label["pi0-fsdp2"].optimizer.lr == 0.5
    assert by_label["pi0-fsdp2"].optimizer.name == "adamw"


def test_a_cell_is_its_settings_not_its_label() -> None:
    cell = plan().runs[0].cell
    assert cell.model_copy(update={"label": "other"}).identity == cell.identity
    assert cell.model_copy(update={"clip": 0.5}).identity != cell.identity


def test_a_learning_run_per_backend_and_seed_and_an_arm_for_each() -> None:
    made = plan("learning.training_seeds=[0,1]")
    learning = [(run.cell.label, run.training_seed) for run in made.runs if run.kind == "learning"]
    assert learning == [("pi0-zero3", 0), ("pi0-fsdp2", 0), ("pi0-zero3", 1), ("pi0-fsdp2", 1)]
    assert [arm.name for arm in made.arms] == [*(f"{label}-seed{seed}" for label, seed in learning), "expert", "still"]
    assert len({run.key for run in made.runs}) == len(made.runs)


def test_a_gate_that_cannot_fire_is_refused_with_the_number_that_would_do() -> None:
    with pytest.raises(BadInput, match=r"throughput.repeats = 2: expected at least (\d+)") as caught:
        plan("purpose=gate")
    needed = int(str(caught.value).split("at least ")[1].split(",")[0])
    assert plan("purpose=gate", f"throughput.repeats={needed}").purpose == "gate"
    with pytest.raises(BadInput):
        plan("purpose=gate", f"throughput.repeats={needed - 1}")


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
