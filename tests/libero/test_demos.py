import json

import h5py
import numpy as np
import pytest

from harness.errors import BadInput
from harness.libero.demo import record_demo
from harness.libero.demos import DemosRecord, DemosSpec, make_demonstrations
from harness.libero.demos_file import write_demos_file
from harness.store import read_record

SPEC = DemosSpec(task_suite="libero_object", tasks=[0], episodes=2, frame_stride=20, seed=3)


class Killed(BaseException):
    """Stands for kill -9: nothing below catches it."""


def interrupt(_progress):
    raise Killed


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A set whose making was cut off after its first episode and taken up by other workers."""
    folder = tmp_path_factory.mktemp("demos")
    with pytest.raises(Killed):
        make_demonstrations(SPEC, folder, 1, interrupt)
    assert not (folder / "demos.json").exists()
    left = list(folder.glob(".parts/*/*.npz"))
    progress = []
    record = make_demonstrations(SPEC, folder, 1, progress.append)
    assert len(left) >= 1
    assert progress[-1].done == 2
    return folder, record


def test_the_layout_is_libero_s(made):
    folder, record = made
    (entry,) = record.files
    with h5py.File(folder / entry.name) as file:
        data = file["data"]
        assert entry.name == "pick_up_the_alphabet_soup_and_place_it_in_the_basket_demo.hdf5"
        assert data.attrs["num_demos"] == len(data) == entry.demos == 2
        assert data.attrs["total"] == entry.steps
        problem = json.loads(data.attrs["problem_info"])
        assert problem["language_instruction"] == "Pick the alphabet soup and place it in the basket"
        assert data.attrs["upright"]
        assert data.attrs["frame_stride"] == 20
        assert "none of the 50 evaluation states" in data.attrs["initial_states"]
        assert DemosSpec.model_validate_json(data.attrs["demos_spec"]) == SPEC
        for demo in data.values():
            steps, frames = demo.attrs["num_samples"], len(demo["obs/frame_index"])
            assert demo["actions"].shape == (steps, 7)
            assert demo["actions"].dtype == np.float64
            assert demo["states"].shape[0] == demo["robot_states"].shape[0] == steps
            assert demo["robot_states"].shape[1] == 9
            assert np.array_equal(demo["obs/frame_index"], np.arange(0, steps, 20))
            for camera in ("agentview_rgb", "eye_in_hand_rgb"):
                assert demo[f"obs/{camera}"].shape == (frames, 128, 128, 3)
                assert demo[f"obs/{camera}"].dtype == np.uint8
            for name, width in (
                ("ee_pos", 3),
                ("ee_ori", 3),
                ("ee_states", 6),
                ("gripper_states", 2),
                ("joint_states", 7),
            ):
                assert demo[f"obs/{name}"].shape == (steps, width)
            assert demo["dones"][-1] == demo["rewards"][-1] == 1
            assert demo["dones"][:-1].sum() == 0
    assert not (folder / ".parts").exists()
    assert read_record(folder / "demos.json", DemosRecord) == record


def test_a_set_is_a_function_of_its_spec(made, scenes, tmp_path):
    """The same bytes from another process, in the other order, without interruption."""
    folder, record = made
    scene = scenes("libero_object", 0)
    attempts = {attempt: record_demo(scene, SPEC, attempt) for attempt in (1, 0)}
    assert all(demo.success for demo in attempts.values())
    demos = iter([attempts[0], attempts[1]])
    other = tmp_path / "again.hdf5"
    write_demos_file(other, scene.task, SPEC.model_dump_json(), SPEC.frame_stride, demos)
    with h5py.File(folder / record.files[0].name) as one, h5py.File(other) as two:
        names = []
        one.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        assert len(names) == 28
        for name in names:
            assert np.array_equal(one[name], two[name]), name


def test_the_recorded_action_is_clean_and_every_other_demo_is_noisy(made):
    folder, record = made
    with h5py.File(folder / record.files[0].name) as file:
        clean, noisy = file["data/demo_0"], file["data/demo_1"]
        assert (bool(clean.attrs["noisy"]), bool(noisy.attrs["noisy"])) == (False, True)
        assert np.array_equal(clean["actions"], clean["executed_actions"])
        off = noisy["executed_actions"][:] - noisy["actions"][:]
        assert np.abs(off[:, :3]).max() > 0.1
        assert np.abs(off[:, 3:]).max() == 0


def test_a_finished_set_is_found_and_another_spec_is_refused(made):
    folder, record = made
    assert make_demonstrations(SPEC, folder, 1, interrupt) == record
    with pytest.raises(BadInput, match="empty folder"):
        make_demonstrations(SPEC.model_copy(update={"seed": 4}), folder, 1, interrupt)


def test_the_digest_tells_specs_apart():
    assert SPEC.digest() != SPEC.model_copy(update={"object_jitter_m": 0.01}).digest()
    assert SPEC.digest() == DemosSpec.model_validate_json(SPEC.model_dump_json()).digest()
