import numpy as np
import pytest

from harness.libero.expert.articulated import MovePart
from harness.libero.expert.handles import hand_boxes, plan_holds
from harness.libero.expert.motion import towards

DRAWER, KNOB = ("open", "wooden_cabinet_1_middle_region"), ("turnon", "flat_stove_1")


@pytest.fixture
def kitchen(scenes, key):
    """The scene that the test of the whole expert compiles too."""
    scene = scenes("libero_goal", 1)
    scene.reset(key("libero_goal", 1, 0), look=False)
    return scene


def work(scene, skill, most_steps):
    """Steps until the skill is done."""
    for step in range(most_steps):
        hand, rotation = scene.world.hand()
        target = skill.act(hand)
        if target is None:
            return step
        action = towards(target, hand, rotation, scene.world.wrist())
        assert np.abs(action).max() <= 1
        scene.step(action, look=False)
    raise AssertionError(f"still {skill.phase}")


@pytest.mark.parametrize(
    ("conjunct", "most_steps"),
    [
        (DRAWER, 150),
        (KNOB, 150),
        pytest.param(("open", "wooden_cabinet_1_top_region"), 150, marks=pytest.mark.full),
    ],
)
def test_a_part_is_moved_and_let_go(kitchen, conjunct, most_steps):
    world = kitchen.world
    assert not world.holds(conjunct)
    work(kitchen, MovePart(world, conjunct), most_steps)
    assert world.holds(conjunct)
    assert not world.gripped(world.base(conjunct[1]))
    assert world.hand()[1][2, 2] < -0.9  # the hand looks down again


@pytest.mark.full
def test_what_was_opened_is_closed_again_and_what_was_turned_on_off(kitchen):
    for predicates in (("open", "close"), ("turnon", "turnoff")):
        name = DRAWER[1] if predicates[0] == "open" else KNOB[1]
        for predicate in predicates:
            work(kitchen, MovePart(kitchen.world, (predicate, name)), 200)
            assert kitchen.world.holds((predicate, name))


def test_holds_leave_the_hand_free_and_grip_the_handle(kitchen):
    world = kitchen.world
    joint = world.joint(DRAWER[1])
    part, others = world.boxes(joint.body), world.boxes_besides(joint.body, movable=False)
    holds = plan_holds(world, DRAWER[1], -0.15)
    assert holds
    for hold in holds:
        hand = hand_boxes(hold.grips).moved(hold.rotation, hold.position)
        assert not hand.overlaps(part).any()
        assert not hand.overlaps(others).any()
        closed = hand_boxes(False).moved(hold.rotation, hold.position)
        assert closed.overlaps(part).any() == hold.grips
        end = hand_boxes(hold.grips).moved(*reversed(hold.at(joint, -0.15)))
        assert not end.overlaps(others).any()
