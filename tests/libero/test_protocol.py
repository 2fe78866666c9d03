import pytest

from harness.errors import BadInput
from harness.libero.protocol import PRESETS, preset
from harness.libero.tasks import evaluation_states, task, task_names
from harness.suite import TASK_SUITES


def test_every_preset_has_the_published_budgets_and_settling():
    for name, protocol in PRESETS.items():
        assert protocol.name == name
        assert protocol.step_budgets == {
            "libero_spatial": 220,
            "libero_object": 280,
            "libero_goal": 300,
            "libero_10": 520,
        }
        assert protocol.settle_steps == 10
        assert protocol.rotate_180


def test_presets_are_told_apart_by_digest():
    assert len({protocol.digest() for protocol in PRESETS.values()}) == len(PRESETS)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(BadInput, match='did you mean "openpi"'):
        preset("openpie")


@pytest.mark.parametrize("task_suite", TASK_SUITES)
def test_each_task_suite_has_ten_tasks_with_fifty_states(task_suite):
    assert len(task_names(task_suite)) == 10
    of = task(task_suite, 9)
    assert of.bddl.is_file()
    assert len(evaluation_states(of)) == 50


def test_the_order_is_the_official_one():
    names = [
        ("libero_object", 1, "pick_up_the_cream_cheese_and_place_it_in_the_basket"),
        ("libero_spatial", 5, "pick_up_the_black_bowl_on_the_ramekin_and_place_it_on_the_plate"),
        ("libero_goal", 7, "turn_on_the_stove"),
    ]
    for task_suite, number, name in names:
        assert task_names(task_suite)[number] == name


def test_prompts_go_through_the_template():
    soup = task("libero_object", 0)
    assert soup.instruction == "Pick the alphabet soup and place it in the basket"
    assert soup.prompt(preset("micro")) == soup.instruction
    assert soup.prompt(preset("openpi")) == "pick up the alphabet soup and place it in the basket"
    assert soup.prompt(preset("dexbotic-cogact")).startswith("What action should the robot take to pick up")
    assert task("libero_10", 8).task_language == "put both moka pots on the stove"


def test_a_task_that_is_not_there_is_bad_input():
    with pytest.raises(BadInput, match="0 to 9"):
        task("libero_object", 10)
    with pytest.raises(BadInput, match="libero_object"):
        task_names("libero_objects")
