from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import BadInput
from harness.plan import Plan
from harness.planning import make_plan
from harness.selection import selected
from harness.suite import BLINDED
from harness.suite_file import load_suite

FSDP2 = Path(__file__).parents[1] / "suites" / "fsdp2.toml"


def plan(*overrides: str) -> Plan:
    return make_plan("fsdp2", selected(load_suite(FSDP2, list(overrides))), "cpu-test", cuda=False)


def test_timed_runs_stand_in_abba_order() -> None:
    timed = [(run.cell.label, run.repeat) for run in plan("throughput.repeats=2").runs if run.kind == "timing"]
    forward = ["pi0-zero3", "pi0-zero2", "pi0-fsdp2", "pi0-ddp"]
    assert timed == [(label, 0) for label in forward] + [(label, 1) for label in reversed(forward)]


def test_settings_are_layered_and_the_backend_wins() -> None:
    runs = plan("models.pi0.micro_batch=4", "backends.fsdp2.micro_batch=2", "backends.fsdp2.optimizer.lr=0.5").runs
    by_label = {run.cell.label: run.cell for run in runs if run.kind == "timing"}
    assert by_label["pi0-zero3"].micro_batch == 4
    assert by_label["pi0-fsdp2"].micro_batch == 2
    assert by_label["pi0-fsdp2"].optimizer.lr == 0.5
    assert by_label["pi0-fsdp2"].optimizer.name == "adamw"


def test_a_model_may_read_the_same_episodes_in_its_own_way() -> None:
    made = plan("data.skip_damaged=true", 'models.pi0.reading={normalisation="quantile"}', "data.delta_actions=true")
    data = made.runs[0].cell.data
    assert (data.normalisation, data.delta_actions, data.skip_damaged) == ("quantile", True, True)
    assert made.runs[0].cell.identity != plan("data.skip_damaged=true").runs[0].cell.identity


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


def test_blinded_arms_are_planned_beside_those_that_see() -> None:
    arms = plan('evaluation.arms=["learned","learned:no-images","learned:wrong-instruction"]').arms
    endings = ("", *BLINDED)
    assert [arm.name for arm in arms] == [f"pi0-{key}-seed0{end}" for end in endings for key in ("zero3", "fsdp2")]
    assert {arm.run_key for arm in arms} == {"pi0-zero3/learning-0", "pi0-fsdp2/learning-0"}


def test_a_gate_that_cannot_fire_is_refused_with_the_number_that_would_do() -> None:
    with pytest.raises(BadInput, match=r"throughput.repeats = 5: expected at least (\d+)") as caught:
        plan("purpose=gate")
    needed = int(str(caught.value).split("at least ")[1].split(",")[0])
    assert plan("purpose=gate", f"throughput.repeats={needed}").purpose == "gate"
    with pytest.raises(BadInput):
        plan("purpose=gate", f"throughput.repeats={needed - 1}")
