import pytest

from harness.errors import BadInput
from harness.libero.protocol import PRESETS, preset
from harness.libero.tasks import evaluation_states, task, task_names
from harness.task_suites import EVALUATION_SUITES, INITIAL_STATES, task_count


def test_presets_differ_from_the_common_protocol_where_their_authors_do():
    common = {"libero_spatial": 220, "libero_object": 280, "libero_goal": 300, "libero_10": 520, "libero_90": 400}
    for name, protocol in PRESETS.items():
        assert protocol.name == name
        budgets = {
            "lerobot": {**common, "libero_spatial": 280},
            "libero": dict.fromkeys(common, 600),
        }.get(name, common)
        assert protocol.step_budgets == budgets
        assert (protocol.settle_steps, protocol.zero_steps) == ((0, 5) if name == "libero" else (10, 0))
        assert protocol.rotate_180 == (name != "libero")
        assert protocol.object_jitter_m == (0.03 if name == "micro-jittered" else 0)
        assert protocol.sent_size == {"micro": (128, 128), "micro-jittered": (128, 128), "libero": (128, 128)}.get(
            name, (224, 224) if name in ("openpi", "openvla-oft") else (256, 256)
        )


def test_a_variant_is_run_like_the_task_suite_it_is_made_from():
    cogact = preset("dexbotic-cogact")
    assert [cogact.replan(f"libero_{name}") for name in ("spatial", "object", "goal", "10")] == [12, 16, 16, 15]
    assert cogact.replan("libero_spatial_swap") == 12
    assert cogact.budget("libero_10_with_mug") == 520
    assert preset("dexbotic-cogact", replan_steps=4).replan("libero_spatial") == 4
    assert preset("dexbotic-cogact", replan_steps=12).digest() != cogact.digest()


@pytest.mark.parametrize("task_suite", EVALUATION_SUITES)
def test_every_task_suite_is_complete_in_the_package(task_suite):
    assert len(task_names(task_suite)) == task_count(task_suite)
    first, last = task(task_suite, 0), task(task_suite, task_count(task_suite) - 1)
    for of in (first, last):
        assert of.instruction and of.bddl.is_file()
        assert len(evaluation_states(of)) == INITIAL_STATES


def test_where_the_goal_or_the_wording_was_changed_the_prompt_is_not_the_file_names():
    assert task("libero_goal_task", 9).task_language == "Put the cream cheese on the rack"
    assert task("libero_goal_lan", 9).task_language == "place the wine bottle on the rack"
    assert task("libero_goal_swap", 9).task_language == "put the wine bottle on the rack"


def test_presets_are_told_apart_by_digest():
    assert len({protocol.digest() for protocol in PRESETS.values()}) == len(PRESETS)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(BadInput, match='did you mean "openpi"'):
        preset("openpie")


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
