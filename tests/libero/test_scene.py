"""The claim on which every fast episode rests: bit for bit what LIBERO's standard loop gives."""

import gc
import os

import numpy as np
import pytest

from harness.errors import MachineFault
from harness.libero import scene as scene_module
from harness.libero.scene import NEUTRAL, _standard_environment, choose_gl, episode_seed
from harness.libero.tasks import evaluation_states

STEPS = 25
LOOK_EVERY = 8
CAMERAS = ("agentview", "robot0_eye_in_hand")


def actions():
    generator = np.random.default_rng(5)
    drawn = generator.uniform(-1, 1, size=(STEPS, 7))
    drawn[:, 2] -= 0.5  # downwards, so that contacts and the gripper take part
    return np.clip(drawn, -1, 1)


def ours(scene, key):
    start = scene.reset(key)
    states, images, successes = [scene.simulator_state()], [start.observation.images], [scene.success()]
    low = [start.observation.state]
    for index, action in enumerate(actions(), 1):
        observation = scene.step(action, look=index % LOOK_EVERY == 0)
        states.append(scene.simulator_state())
        successes.append(scene.success())
        low.append(observation.state)
        if observation.images:
            images.append(observation.images)
    return start.scene_sha256, states, images, successes, low


def standard(scene, key):
    """A fresh `OffScreenRenderEnv`: hard reset, both cameras rendered at every step."""
    from robosuite.utils.transform_utils import quat2axisangle

    environment = _standard_environment(scene.task, scene.protocol, hard_reset=True)

    def perceive(raw):
        images = {name: raw[f"{name}_image"][::-1, ::-1] for name in CAMERAS}
        turn = quat2axisangle(np.array(raw["robot0_eef_quat"]))
        return images, np.concatenate([raw["robot0_eef_pos"], turn, raw["robot0_gripper_qpos"]])

    try:
        environment.seed(episode_seed(key))
        environment.reset()
        raw = environment.set_init_state(evaluation_states(scene.task)[key.initial_state])
        for _ in range(10):
            raw, *_ = environment.step(NEUTRAL)
        first, first_low = perceive(raw)
        states, images, successes, low = (
            [environment.get_sim_state()],
            [first],
            [environment.check_success()],
            [first_low],
        )
        for index, action in enumerate(actions(), 1):
            raw, _, done, _ = environment.step(action)
            seen, numbers = perceive(raw)
            states.append(environment.get_sim_state())
            successes.append(done)
            low.append(numbers)
            if index % LOOK_EVERY == 0:
                images.append(seen)
        return states, images, successes, low
    finally:
        environment.close()


FULL = [
    ("libero_object", 4),
    ("libero_object", 9),
    ("libero_goal", 0),
    ("libero_goal", 1),
    ("libero_goal", 9),
    ("libero_spatial", 4),  # an open drawer, whose sampler draws before the fixtures do
    ("libero_spatial", 7),
    ("libero_10", 3),
    ("libero_10", 8),
    ("libero_10", 9),
]


@pytest.mark.parametrize(
    ("task_suite", "number"),
    # The stove of libero_spatial mirrors what is behind the camera.
    [("libero_object", 0), ("libero_spatial", 0), *(pytest.param(*case, marks=pytest.mark.full) for case in FULL)],
)
def test_it_equals_the_standard_loop_bit_for_bit(scenes, key, task_suite, number):
    scene = scenes(task_suite, number)
    episode, other = key(task_suite, number, state=17), key(task_suite, number, state=3)
    ours(scene, other)  # an episode before, which must leave no trace
    sha256, states, images, successes, low = ours(scene, episode)
    expected_states, expected_images, expected_successes, expected_low = standard(scene, episode)

    assert np.array_equal(states, expected_states)
    assert np.array_equal(low, expected_low)
    assert successes == expected_successes
    assert len(images) == len(expected_images) == 1 + STEPS // LOOK_EVERY
    for mine, theirs in zip(images, expected_images, strict=True):
        for camera in CAMERAS:
            assert np.array_equal(mine[camera], theirs[camera])
            assert mine[camera].std() > 5

    again = ours(scene, episode)  # now that another environment's OpenGL context was made after this scene's
    assert again[0] == sha256
    assert np.array_equal(again[1], states)
    for mine, before in zip(again[2], images, strict=True):
        assert all(np.array_equal(mine[camera], before[camera]) for camera in CAMERAS)


def test_the_seed_moves_the_fixtures_and_the_hash_shows_it(scenes, key):
    scene = scenes("libero_goal", 1)
    one = scene.reset(key("libero_goal", 1, seed=7), look=False).scene_sha256
    two = scene.reset(key("libero_goal", 1, seed=8), look=False).scene_sha256
    assert one != two
    assert scene.reset(key("libero_goal", 1, seed=7), look=False).scene_sha256 == one


def test_no_images_without_a_look(scenes, key):
    scene = scenes("libero_object", 0)
    assert scene.reset(key(), look=False).observation.images == {}
    assert scene.step(NEUTRAL, look=False).images == {}
    seen = scene.step(NEUTRAL, look=True).images
    assert {camera: image.shape for camera, image in seen.items()} == dict.fromkeys(CAMERAS, (128, 128, 3))


def test_a_scene_that_closes_leaves_the_others_their_pictures(scenes, key):
    scene = scenes("libero_object", 0)
    other = scene_module.Scene(scene.task, scene.protocol)
    before = scene.reset(key()).observation.images
    other.reset(key())
    scene.step(NEUTRAL, look=True)  # the other's OpenGL context is not current when it closes
    other.close()
    del other
    gc.collect()
    after = scene.reset(key()).observation.images
    assert all(np.array_equal(before[camera], after[camera]) for camera in CAMERAS)


def test_own_draws_are_jittered_valid_and_reproducible(scenes):
    scene = scenes("libero_object", 0)
    drawn = {}
    for seed in (1, 2, 1):
        scene.draw(seed, 0.02, 0.02, look=False)
        places = np.array([scene.world.position(name) for name in scene.world.movable])
        if seed in drawn:
            assert np.array_equal(drawn[seed], places)
        drawn[seed] = places
    assert np.abs(drawn[1] - drawn[2]).max() > 0.01
    assert (drawn[1][:, 2] > -0.02).all()  # nothing fell through the floor


def test_a_jittered_evaluation_moves_what_stands_free_and_is_a_function_of_the_key(scenes, key, monkeypatch):
    scene, episode = scenes("libero_object", 0), key("libero_object", 0)

    def places(of, object_jitter_m):
        monkeypatch.setattr(scene, "protocol", scene.protocol.model_copy(update={"object_jitter_m": object_jitter_m}))
        start = scene.reset(of, look=False)
        return start.scene_sha256, np.array([scene.world.position(name) for name in scene.world.movable])

    plain_hash, plain = places(episode, 0.0)
    moved_hash, moved = places(episode, 0.03)
    other_hash, other = places(episode.model_copy(update={"seed": episode.seed + 1}), 0.03)
    assert len({plain_hash, moved_hash, other_hash}) == 3
    assert places(episode, 0.03)[0] == moved_hash
    assert places(episode, 0.0)[0] == plain_hash
    shift = np.abs(moved - plain)[:, :2]
    assert 0.005 < shift.max() < 0.035  # settling adds a little
    assert np.abs(moved - other).max() > 0.005


def test_a_key_of_another_task_is_refused(scenes, key):
    with pytest.raises(ValueError, match="libero_object"):
        scenes("libero_object", 0).reset(key("libero_goal", 1))


def test_a_mujoco_outside_the_range_names_the_mend(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "3.4.0")
    with pytest.raises(MachineFault, match=r"pip install 'mujoco==3\.3\.2'"):
        scene_module.check_mujoco_version()


def test_without_opengl_the_fault_names_the_package(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
    monkeypatch.setattr(scene_module, "find_library", lambda name: None)
    with pytest.raises(MachineFault, match="apt-get install libegl1"):
        choose_gl()
    monkeypatch.setattr(scene_module, "find_library", lambda name: name if name == "OSMesa" else None)
    assert choose_gl() == "osmesa" == os.environ["MUJOCO_GL"]
