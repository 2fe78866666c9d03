from dataclasses import dataclass, field

import numpy as np
import pytest

from harness.libero.episode import never, play
from harness.libero.expert import Expert, pick_place, uncovered_reason
from harness.libero.expert.motion import HandTarget, towards


@dataclass
class GoalOnly:
    """As much of a world as deciding on coverage needs."""

    goal: tuple
    held: tuple = ()
    movable: tuple = ("akita_black_bowl_1",)
    regions: dict = field(default_factory=lambda: {"cabinet_top_region": True, "flat_stove_1_cook_region": False})

    def holds(self, conjunct):
        return conjunct in self.held

    def is_region(self, name):
        return name in self.regions

    def is_articulated(self, region):
        return self.regions[region]


@pytest.mark.parametrize(
    ("goal", "reason"),
    [
        ((("turnon", "flat_stove_1"),), "turnon flat_stove_1"),
        ((("open", "cabinet_top_region"),), "open cabinet_top_region"),
        ((("in", "akita_black_bowl_1", "cabinet_top_region"),), "no skill to open"),
        ((("on", "flat_stove_1", "plate_1"),), "no skill to carry"),
        ((("close", "cabinet_top_region"), ("on", "akita_black_bowl_1", "plate_1")), "close"),
    ],
)
def test_a_goal_without_a_skill_says_why(goal, reason):
    assert reason in uncovered_reason(GoalOnly(goal))


def test_pick_and_place_is_covered_and_what_holds_needs_no_skill(monkeypatch):
    monkeypatch.setattr(pick_place, "plan_grasps", lambda world, name, most: ["a grip"])
    on_stove = ("on", "akita_black_bowl_1", "flat_stove_1_cook_region")
    assert uncovered_reason(GoalOnly((on_stove,))) is None
    burning = ("turnon", "flat_stove_1")
    assert uncovered_reason(GoalOnly((burning, on_stove), held=(burning,))) is None
    monkeypatch.setattr(pick_place, "plan_grasps", lambda world, name, most: [])
    assert "no free grip" in uncovered_reason(GoalOnly((on_stove,)))


def test_an_action_goes_straight_to_the_target_and_stays_in_range():
    down = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, -1]])
    action = towards(HandTarget(np.array([1.0, 0.5, 0]), 0.0, -1.0), np.zeros(3), down)
    assert np.abs(action).max() <= 1
    assert action[:3] == pytest.approx([1, 0.5, 0])
    assert action[3:6] == pytest.approx([0, 0, 0])
    turned = towards(HandTarget(np.zeros(3), np.pi, -1.0), np.zeros(3), down)
    assert turned[3:6] == pytest.approx([0, 0, 0], abs=1e-9)  # half a turn is the same grip


@pytest.mark.parametrize(("task_suite", "number", "state"), [("libero_object", 0, 40), ("libero_goal", 1, 0)])
def test_it_solves_an_episode_through_the_ordinary_loop(scenes, key, task_suite, number, state):
    scene = scenes(task_suite, number)
    episode_key = key(task_suite, number, state)
    start = scene.reset(episode_key, look=False)
    assert uncovered_reason(scene.world) is None
    expert = Expert(scene.world)
    episode = play(scene, start.observation, episode_key, scene.protocol, scene.task.instruction, never)
    try:
        next(episode)
        while True:
            episode.send(expert.act()[None])
    except StopIteration as stop:
        ending = stop.value
    assert ending.outcome == "success"
    assert np.abs(ending.actions).max() <= 1
    assert ending.steps < 200
