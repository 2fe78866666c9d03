"""The expert's flaws: how they are written, and what they do to its actions."""

import numpy as np
import pytest

from harness.commands.jobs import _arm
from harness.errors import BadInput
from harness.libero.expert import graded
from harness.libero.expert.graded import GradedExpert
from harness.libero.handicap import Handicap, handicap_of
from harness.libero.pool import ArmToPlay


def test_a_handicap_is_read_from_the_arms_name():
    assert handicap_of("expert:noise=0.3, frozen=80") == Handicap(noise=0.3, frozen=80)
    assert handicap_of("expert") is handicap_of("still") is handicap_of("pi0-micro") is None
    assert ArmToPlay("expert:release=60", [], None, None).brain == "expert:release=60"
    assert _arm("expert:wrong_object=0.5").name == "expert:wrong_object=0.5"


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ("expert:niose=0.3", 'did you mean "noise"'),
        ("expert:noise", "each flaw once with its size"),
        ("expert:noise=0.1,noise=0.2", "each flaw once"),
        ("expert:wrong_object=1.5", "less than or equal to 1"),
        ("expert:frozen=soon", "valid integer"),
        ("expert:", "a flaw of the expert"),
    ],
)
def test_a_handicap_that_cannot_be_is_refused(arm, said):
    with pytest.raises(BadInput, match=said):
        handicap_of(arm)


class Steady:
    """An expert that always moves by a half and keeps the gripper closed."""

    def __init__(self, world):
        self.world = world

    def act(self):
        return np.array([0.5] * 6 + [1.0])


class Room:
    """A world with three things, one of which cannot be gripped."""

    goal = (("in", "soup", "basket"), ("on", "soup", "plate"))
    movable = ("soup", "butter", "rock", "basket")

    def position(self, name):
        return f"where the {name} is"


@pytest.fixture
def play(monkeypatch):
    monkeypatch.setattr(graded, "Expert", Steady)
    monkeypatch.setattr(graded, "uncovered_reason", lambda world: "no" if world.goal[0][1] == "rock" else None)

    def go(handicap, seed=1, steps=100):
        expert = GradedExpert(Room(), handicap, seed)
        return expert, np.array([expert.act() for _ in range(steps)])

    return go


def test_without_a_flaw_the_actions_are_the_experts(play):
    assert (play(Handicap())[1] == Steady(None).act()).all()


def test_noise_has_its_size_spares_the_gripper_and_is_the_episodes(play):
    _, actions = play(Handicap(noise=0.1), steps=2000)
    assert actions[:, :6].std() == pytest.approx(0.1, rel=0.05)
    assert (actions[:, 6] == 1).all()
    assert np.array_equal(actions, play(Handicap(noise=0.1), steps=2000)[1])
    assert not np.array_equal(actions, play(Handicap(noise=0.1), seed=2, steps=2000)[1])
    assert np.abs(play(Handicap(noise=5.0))[1]).max() == 1


def test_what_happens_at_a_step_happens_from_it_on(play):
    _, frozen = play(Handicap(frozen=10))
    assert (frozen[:10, 0] == 0.5).all()
    assert (frozen[10:] == [0] * 6 + [1]).all()
    _, released = play(Handicap(release=10))
    assert (released[:, 6] == [1.0] * 10 + [-1.0] * 90).all()
    assert (released[:, 0] == 0.5).all()


def test_the_wrong_object_is_taken_as_often_as_stated(play):
    goals = [play(Handicap(wrong_object=0.3), seed, steps=0)[0]._expert.world.goal for seed in range(400)]
    mistaken = [goal for goal in goals if goal != Room.goal]
    assert set(mistaken) == {(("in", "butter", "basket"),)}
    assert len(mistaken) == pytest.approx(120, abs=35)
    world = play(Handicap(wrong_object=1.0), steps=0)[0]._expert.world
    assert world.position("plate") == "where the plate is"
