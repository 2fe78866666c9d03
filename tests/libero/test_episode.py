from dataclasses import dataclass, field

import numpy as np
import pytest

from harness.libero.episode import Ending, look_seed, never, play
from harness.libero.perception import images_sha256, resized
from harness.libero.protocol import preset
from harness.libero.records import Resizing
from harness.plan import EpisodeKey

KEY = EpisodeKey(task_suite="libero_object", task=0, initial_state=3, seed=7)
PROTOCOL = preset("micro").model_copy(update={"step_budgets": {"libero_object": 20}})


@dataclass
class Percept:
    number: int
    seen: bool

    @property
    def images(self):
        return {"agentview": np.full((2, 2, 3), self.number, np.uint8)} if self.seen else {}

    @property
    def state(self):
        return np.full(8, float(self.number))

    @property
    def joints(self):
        return np.arange(7.0)

    @property
    def gripper(self):
        return np.array([0.04, -0.04])


@dataclass
class StubScene:
    """Succeeds when it has taken `succeed_at` steps."""

    succeed_at: int = 10**9
    taken: list = field(default_factory=list)
    looked: list = field(default_factory=list)

    def step(self, action, *, look):
        self.taken.append(action)
        self.looked.append(look)
        return Percept(len(self.taken), look)

    def success(self):
        return len(self.taken) == self.succeed_at


def drive(scene, chunk_for, protocol=PROTOCOL, **options):
    """Plays an episode; returns its looks and its ending."""
    episode = play(scene, Percept(0, True), KEY, protocol, "do it", **options)
    looks = [next(episode)]
    try:
        while True:
            looks.append(episode.send(chunk_for(looks[-1])))
    except StopIteration as stop:
        return looks, stop.value


def chunk(length, gripper=-1.0):
    return np.tile(np.array([0.1, 0, 0, 0, 0, 0, gripper], np.float32), (length, 1))


def test_it_executes_replan_steps_of_each_chunk_and_looks_only_then():
    scene = StubScene()
    looks, ending = drive(scene, lambda look: chunk(16))
    assert ending.outcome == "failure"
    assert [look.replan for look in looks] == [0, 1, 2]
    assert [int(look.state[0]) for look in looks] == [0, 8, 16]
    assert [step for step, looked in enumerate(scene.looked, 1) if looked] == [8, 16, 20]
    assert ending.steps == 20
    assert ending.looks == 3


def test_success_at_any_step_ends_the_episode():
    _, ending = drive(StubScene(succeed_at=11), lambda look: chunk(16))
    assert (ending.outcome, ending.steps, ending.looks) == ("success", 11, 2)


def test_the_last_step_of_the_budget_counts():
    _, ending = drive(StubScene(succeed_at=20), lambda look: chunk(8))
    assert ending.outcome == "success"


def test_a_short_chunk_is_executed_whole():
    looks, _ = drive(StubScene(), lambda look: chunk(3))
    assert [int(look.state[0]) for look in looks][:4] == [0, 3, 6, 9]


def test_nothing_is_rendered_for_a_policy_that_does_not_look():
    scene = StubScene()
    drive(scene, lambda look: chunk(1), with_images=never)
    assert not any(scene.looked)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (np.zeros((4, 6), np.float32), "shape"),
        (np.zeros(7, np.float32), "shape"),
        (np.zeros((0, 7), np.float32), "shape"),
        (np.full((4, 7), np.nan, np.float32), "NaN"),
        (np.zeros((4, 7), np.int64), "dtype"),
    ],
)
def test_a_bad_chunk_is_an_error_and_never_a_failure(bad, reason):
    _, ending = drive(StubScene(), lambda look: chunk(8) if look.replan == 0 else bad)
    assert isinstance(ending, Ending)
    assert ending.outcome == "error"
    assert reason in ending.reason
    assert ending.steps == 8


def test_the_sign_rule_opens_below_zero_and_closes_else():
    protocol = PROTOCOL.model_copy(update={"gripper": "sign"})
    for command, executed in ((-0.2, -1.0), (0.0, 1.0), (0.3, 1.0)):
        _, ending = drive(StubScene(succeed_at=1), lambda look, c=command: chunk(1, c), protocol=protocol)
        assert ending.actions[0, -1] == executed


def test_noise_seeds_depend_on_episode_and_replan_index_alone():
    seeds = {look_seed(KEY, replan) for replan in range(50)}
    seeds |= {look_seed(KEY.model_copy(update={"initial_state": state}), 0) for state in range(4, 50)}
    assert len(seeds) == 96
    assert look_seed(KEY, 2) == look_seed(EpisodeKey.model_validate(KEY.model_dump()), 2)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_commands_from_zero_to_one_open_above_a_half():
    protocol = PROTOCOL.model_copy(update={"gripper": "unit-inverted"})
    for command, executed in ((0.9, -1.0), (0.5, 1.0), (0.1, 1.0)):
        _, ending = drive(StubScene(succeed_at=1), lambda look, c=command: chunk(1, c), protocol=protocol)
        assert ending.actions[0, -1] == executed


def test_the_original_settling_is_zeros_that_are_neither_recorded_nor_counted():
    protocol = PROTOCOL.model_copy(update={"zero_steps": 5, "state_layout": "joints+gripper"})
    scene = StubScene()
    looks, ending = drive(scene, lambda look: chunk(8), protocol=protocol)
    assert len(scene.taken) == 25
    assert not np.any(scene.taken[:5])
    assert scene.looked[:5] == [False] * 4 + [True]
    assert ending.steps == 20
    assert looks[0].images["agentview"][0, 0, 0] == 5
    assert looks[0].state.tolist() == [*range(7), 0.04, -0.04]


def test_images_are_resized_on_the_way_and_hashed_as_they_are_shown():
    small = PROTOCOL.model_copy(update={"resize": Resizing(size=6, kernel="bilinear")})
    looks, ending = drive(StubScene(), lambda look: chunk(20), protocol=small)
    assert looks[0].images["agentview"].shape == (6, 6, 3)
    assert ending.first_images_sha256 == images_sha256(looks[0].images)
    assert ending.last_images_sha256 == images_sha256(looks[-1].images) != ending.first_images_sha256
    _, plain = drive(StubScene(), lambda look: chunk(20))
    assert plain.first_images_sha256 != ending.first_images_sha256
    _, unseen = drive(StubScene(), lambda look: chunk(20), with_images=never)
    assert unseen.last_images_sha256 is None


@pytest.mark.parametrize("resizing", [Resizing(size=224, kernel="bilinear"), Resizing(size=224, kernel="lanczos")])
def test_resizing_keeps_a_flat_image_and_the_order_of_a_slope(resizing):
    flat = np.full((256, 256, 3), 93, np.uint8)
    assert (resized(flat, resizing) == 93).all()
    slope = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (256, 256, 3))
    row = resized(np.ascontiguousarray(slope), resizing)[0, :, 0].astype(int)
    assert (np.diff(row) >= 0).all()
    through_jpeg = resized(flat, resizing.model_copy(update={"jpeg_first": True}))
    assert np.abs(through_jpeg.astype(int) - 93).max() <= 1
