import numpy as np
import pytest

from harness.libero.protocol import preset
from harness.plan import EpisodeKey
from harness.policies.base import Look
from harness.policies.blinded import GREY, Blinded

PROTOCOL = preset("micro")


class Mirror:
    """Keeps what it was shown."""

    def __init__(self):
        self.shown, self.over, self.closed = [], [], False

    def act(self, looks):
        self.shown += looks
        return [np.full((2, 7), look.replan, np.float32) for look in looks]

    def ended(self, key, success):
        self.over.append((key, success))

    def close(self):
        self.closed = True


def look(number, replan=0, prompt="as it is"):
    key = EpisodeKey(task_suite="libero_object", task=number, initial_state=0, seed=7)
    images = {"agentview": np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)}
    return Look(key=key, replan=replan, images=images, state=np.arange(8.0), prompt=prompt, seed=3)


def test_images_are_grey_and_nothing_else_is_changed():
    inner, given = Mirror(), look(0)
    answers = Blinded(inner, ":no-images", PROTOCOL).act([given, look(1, replan=4)])
    first, second = inner.shown
    assert (first.images["agentview"] == GREY).all()
    assert first.images["agentview"].shape == (4, 4, 3)
    assert (first.prompt, first.seed, first.key, second.replan) == ("as it is", 3, given.key, 4)
    assert np.array_equal(first.state, given.state)
    assert given.images["agentview"].max() == 47  # the look itself is left as it was
    assert [answer[0, 0] for answer in answers] == [0, 4]


@pytest.mark.parametrize(("number", "wrong"), [(0, "cream cheese"), (9, "alphabet soup")])
def test_the_instruction_is_the_next_task_s(number, wrong):
    inner = Mirror()
    Blinded(inner, ":wrong-instruction", PROTOCOL).act([look(number)])
    (shown,) = inner.shown
    assert wrong in shown.prompt.lower()
    assert np.array_equal(shown.images["agentview"], look(number).images["agentview"])


def test_an_instruction_that_happens_to_be_the_same_is_passed_over():
    inner = Mirror()
    blinded = Blinded(inner, ":wrong-instruction", PROTOCOL)
    blinded.act([look(0)])
    blinded.act([look(0, prompt=inner.shown[0].prompt)])
    assert inner.shown[1].prompt != inner.shown[0].prompt


def test_the_rest_is_passed_on():
    inner = Mirror()
    blinded = Blinded(inner, ":no-images", PROTOCOL)
    blinded.ended(look(2).key, True)
    blinded.close()
    assert inner.over == [(look(2).key, True)]
    assert inner.closed
