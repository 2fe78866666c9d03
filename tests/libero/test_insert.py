import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.libero.expert.handles import hand_boxes
from harness.libero.expert.insert import _leant, plan_ways

BOWL, DRAWER = "akita_black_bowl_1", "wooden_cabinet_1_top_region"


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 2 * np.pi), st.floats(0, 2 * np.pi), st.floats(0, 1.2))
def test_a_leant_hand_closes_as_before_and_leans_no_further_than_asked(closing, facing, lean):
    closing, facing = (np.array([np.cos(angle), np.sin(angle), 0.0]) for angle in (closing, facing))
    turned = _leant(closing, facing, lean)
    assert turned.T @ turned == pytest.approx(np.eye(3), abs=1e-9)
    assert np.linalg.det(turned) == pytest.approx(1)
    assert turned[:, 0] == pytest.approx(closing)
    assert -turned[2, 2] >= np.cos(lean) - 1e-9


@pytest.mark.full
def test_ways_into_an_open_drawer_leave_the_hand_free_at_both_ends(scenes, key):
    scene = scenes("libero_goal", 1)
    scene.reset(key("libero_goal", 1, 0), look=False)
    world, simulation = scene.world, scene._domain.sim
    simulation.data.set_joint_qpos(scene._domain.object_sites_dict[DRAWER].joints[0], -0.15)
    simulation.forward()
    ways = plan_ways(world, BOWL, DRAWER)
    assert ways
    own, others = world.boxes(world.body(BOWL)), world.boxes_besides(world.body(BOWL))
    position, rotation = world.position(BOWL), world.rotation(BOWL)
    for way in ways:
        hand = hand_boxes(opened=True).moved(rotation @ way.rotation, position + rotation @ way.offset)
        assert not hand.overlaps(others).any()
        assert not hand.overlaps(own).any()
        shift = world.position(DRAWER) + way.place - position
        assert not hand.moved(np.eye(3), shift).overlaps(others).any()
        assert not own.moved(np.eye(3), shift).overlaps(others).any()
        assert np.all(np.abs(way.place[:2]) < world.half_size(DRAWER)[:2])
