"""What the worker process says of the expert's failures."""

import numpy as np
import pytest
from test_episode import KEY, PROTOCOL, Percept, StubScene

from harness.libero import pool_worker
from harness.libero.episode import never, play
from harness.libero.pool_worker import Play, _Player


class Stuck:
    doing = "on bowl plate: above the object"

    def act(self):
        return np.zeros(7)


class Pipe:
    def send(self, message):
        pass


@pytest.mark.parametrize(
    ("brain", "succeed_at", "reason"),
    [("expert", 99, "at the end: on bowl plate: above the object"), ("expert", 5, None), ("still", 99, None)],
)
def test_a_failure_of_the_expert_names_what_it_was_at(monkeypatch, brain, succeed_at, reason):
    monkeypatch.setattr(pool_worker, "_expert", lambda wanted, scene: Stuck() if wanted.brain == "expert" else None)
    scene = StubScene(succeed_at)
    episode = play(scene, Percept(0, False), KEY, PROTOCOL, "do it", never)
    ending = _Player(Pipe(), PROTOCOL)._drive(episode, scene, Play(KEY, brain))
    assert ending.outcome == ("success" if succeed_at == 5 else "failure")
    assert ending.reason == reason
