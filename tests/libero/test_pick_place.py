"""Pick and place on a table of boxes: where the hand is sent, without a simulator."""

import numpy as np
import pytest
from test_grasps import Table, box

from harness.libero.expert.grasps import Grasp
from harness.libero.expert.motion import OPEN, HandTarget
from harness.libero.expert.pick_place import Phase, PickPlace, _tried_last
from harness.libero.expert.places import free_spot

DOWN = np.diag([1.0, -1.0, -1.0])


class Desk(Table):
    """A table with a region to put things on, and a hand."""

    @property
    def movable(self):
        return tuple(name for name in self.bodies if name != "wall")

    def __init__(self, goal, half=(0.08, 0.08, 0.002), **bodies):
        super().__init__(**bodies)
        self.goal, self.half, self.at = goal, np.array(half), np.array([0.0, -0.3, 0.3])

    def hand(self):
        return self.at, DOWN

    def opening(self):
        return 0.08

    def gripped(self, name):
        return True

    def supported(self, name):
        return False

    def is_region(self, name):
        return name == "spot"

    def parent(self, region):
        return None

    def half_size(self, region):
        return self.half

    def position(self, name):
        return np.array([0.3, 0.2, 0.0]) if name == "spot" else super().position(name)


ONE = (("on", "thing", "spot"),)
TWO = (*ONE, ("on", "other", "spot"))
THING = box((0.06, 0.1, 0.05))


def test_with_nothing_in_the_way_it_still_lifts_what_it_carries():
    skill = PickPlace(Desk(ONE, thing=THING), ONE[0])
    skill._enter(Phase.CARRY)
    target = skill.act(np.array([0.0, 0.0, 0.03]))
    assert np.isfinite(target.position).all()
    assert target.position[2] > skill._anchor[2]


def test_what_is_carried_passes_above_what_stands_between():
    wall = box((0.02, 0.3, 0.2), at=(0.15, 0.1))
    skill = PickPlace(Desk(ONE, thing=THING, wall=wall), ONE[0])
    skill._enter(Phase.CARRY)
    target = skill.act(np.array([0.0, 0.0, 0.03]))
    assert target.position[2] > 0.2 + 0.03
    assert target.position[:2] == pytest.approx(skill._anchor[:2])  # not sideways before it is high enough


def test_what_is_lowered_keeps_its_height_off_its_line_until_the_arm_gets_no_nearer():
    skill = PickPlace(Desk(ONE, thing=THING), ONE[0])
    skill._enter(Phase.LOWER)
    heights = [skill.act(np.array([0.0, 0.0, z])).position[2] for z in (0.2, 0.204, 0.208, 0.208, 0.208)]
    assert heights == pytest.approx([0.2] * 5)
    for _ in range(6):
        target = skill.act(np.array([0.0, 0.0, 0.208]))
    assert target.position[2] < 0.19


def test_a_region_of_ones_own_is_used_in_its_middle_and_a_shared_one_leaves_room():
    assert free_spot(Desk(ONE, thing=THING), ONE[0]) == pytest.approx([0, 0])
    offset = free_spot(Desk(TWO, thing=THING, other=box((0.06, 0.1, 0.05), at=(0, 0.4))), TWO[0])
    assert abs(offset[0]) == pytest.approx(0.7 * 0.08)
    there = box((0.06, 0.1, 0.05), at=(0.3 + offset[0], 0.2))
    assert abs(free_spot(Desk(TWO, other=there, thing=THING), TWO[0])[0] - offset[0]) > 0.06


def test_the_hand_brakes_near_its_target_and_presses_out_what_error_stays():
    skill = PickPlace(Desk(ONE, thing=THING), ONE[0])
    target = HandTarget(np.zeros(3), 0.0, OPEN)
    skill._before = np.array([-0.03, 0.0, 0.0])
    assert skill._insisting(target, np.array([-0.02, 0.0, 0.0])).position[0] < 0
    pressed = [skill._insisting(target, np.array([0.0, 0.0, 0.006])).position[2] for _ in range(6)]
    assert pressed[-1] < pressed[2] < 0
    assert skill._insisting(target, np.array([0.0, 0.0, 0.2])).position == pytest.approx([0, 0, 0])


def test_grasps_that_failed_come_last_the_latest_failure_at_the_end():
    grasps = [Grasp(np.array([x, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])) for x in (0.0, 0.05, 0.1)]
    assert _tried_last(grasps, [grasps[0]]) == [grasps[1], grasps[2], grasps[0]]
    assert _tried_last(grasps, [grasps[0], grasps[1], grasps[0]]) == [grasps[2], grasps[1], grasps[0]]
