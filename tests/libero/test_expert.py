from dataclasses import dataclass

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
    jointed: tuple = ("flat_stove_1", "cabinet_top_region")

    def holds(self, conjunct):
        return conjunct in self.held

    def joint(self, name):
        return name if name in self.jointed else None

    def wanted_range(self, conjunct):
        known = conjunct in (("turnon", "flat_stove_1"), ("open", "cabinet_top_region"))
        return (0.5, 2.1) if known else None

    def lid(self, region):
        return region if region in self.jointed else None


@pytest.mark.parametrize(
    ("goal", "reason"),
    [
        ((("turnon", "plate_1"),), "no skill to turnon plate_1"),
        ((("open", "flat_stove_1"),), "no skill to open flat_stove_1"),
        ((("on", "flat_stove_1", "plate_1"),), "no skill to carry"),
        ((("turnon", "flat_stove_1"), ("up", "akita_black_bowl_1", "1")), "no skill to up"),
    ],
)
def test_a_goal_without_a_skill_says_why(goal, reason):
    assert reason in uncovered_reason(GoalOnly(goal))


def test_what_holds_needs_no_skill_and_parts_can_be_moved(monkeypatch):
    monkeypatch.setattr(pick_place, "plan_grasps", lambda world, name, most: ["a grip"])
    on_stove = ("on", "akita_black_bowl_1", "flat_stove_1_cook_region")
    burning, opened = ("turnon", "flat_stove_1"), ("open", "cabinet_top_region")
    assert uncovered_reason(GoalOnly((on_stove, burning, opened))) is None
    assert uncovered_reason(GoalOnly((("open", "plate_1"),), held=(("open", "plate_1"),))) is None
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
