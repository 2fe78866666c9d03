"""The reader, on small files in LIBERO's layout and in ours."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from harness.data.dataset import open_dataset
from harness.data.libero_hdf5 import LiberoHdf5, task_files
from harness.data.shape import InputShape
from harness.data.source import Episode
from harness.errors import BadInput, DamagedRecord
from harness.libero.tasks import task_names
from harness.suite import Data

STEPS, SIZE = 7, 12
SHAPE = InputShape(
    cameras=("agentview", "robot0_eye_in_hand"),
    image_size=8,
    text_slots=16,
    vocabulary=64,
    state_dim=8,
    action_dim=7,
    chunk=4,
)


def read_all(source: LiberoHdf5) -> list[Episode]:
    return [source.read(number) for number in range(len(source))]


def frames_of(demo: int) -> np.ndarray:
    """(T, H, W, 3) upright; every pixel tells its step, row and column."""
    step, row, column = np.meshgrid(np.arange(STEPS), np.arange(SIZE), np.arange(SIZE), indexing="ij")
    return np.stack([step * 10 + demo, row * 5, column * 5], -1).astype(np.uint8)


def write(path: Path, demos: int = 2, ours: bool = False, prompt: object = "pick up the soup") -> Path:
    kept = np.arange(0, STEPS, 3) if ours else np.arange(STEPS)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["problem_info"] = json.dumps({"language_instruction": prompt})
        if ours:
            data.attrs["upright"], data.attrs["frame_stride"] = True, 3
        for demo in range(demos):
            group = data.create_group(f"demo_{demo}")
            group["actions"] = np.arange(STEPS * 7).reshape(STEPS, 7) / 100 + demo
            observed = group.create_group("obs")
            upright = frames_of(demo)
            stored = upright if ours else upright[:, ::-1, ::-1]
            observed["agentview_rgb"] = stored[kept]
            observed["eye_in_hand_rgb"] = 255 - stored[kept]
            observed["ee_pos"] = np.arange(STEPS)[:, None] + np.array([0.0, 0.1, 0.2])
            observed["ee_ori"] = np.tile([3.1, 0, 0], (STEPS, 1))
            observed["gripper_states"] = np.tile([0.04, -0.04], (STEPS, 1))
            if ours:
                observed["frame_index"] = kept
    return path


def test_official_layout_is_turned_upright(tmp_path):
    path = write(tmp_path / "a.hdf5", demos=12)
    episodes = read_all(LiberoHdf5((path,), 12))
    assert [int(episode.images["agentview"][0, 0, 0, 0]) for episode in episodes] == list(range(12))
    first = episodes[0]
    assert first.prompt == "pick up the soup"
    assert first.frame_steps.tolist() == list(range(STEPS))
    np.testing.assert_array_equal(first.images["agentview"], frames_of(0))
    np.testing.assert_array_equal(first.images["robot0_eye_in_hand"], 255 - frames_of(0))
    np.testing.assert_allclose(first.states[2], [2, 2.1, 2.2, 3.1, 0, 0, 0.04, -0.04])
    assert first.actions.shape == (STEPS, 7)


def test_our_layout_gives_the_same_at_its_frames(tmp_path):
    official = LiberoHdf5((write(tmp_path / "a.hdf5"),), 1).read(0)
    ours = LiberoHdf5((write(tmp_path / "b.hdf5", ours=True),), 1).read(0)
    assert ours.frame_steps.tolist() == [0, 3, 6]
    np.testing.assert_array_equal(ours.images["agentview"], official.images["agentview"][::3])
    np.testing.assert_array_equal(ours.states, official.states[::3])
    np.testing.assert_array_equal(ours.actions, official.actions)


def test_instruction_may_be_a_list_of_words(tmp_path):
    path = write(tmp_path / "a.hdf5", prompt=["pick", "up", "milk"])
    assert LiberoHdf5((path,), 1).read(0).prompt == "pick up milk"


def _drop_actions(file):
    del file["data/demo_1/actions"]


def _cut_states(file):
    values = file["data/demo_1/obs/ee_pos"][:3]
    del file["data/demo_1/obs/ee_pos"]
    file["data/demo_1/obs/ee_pos"] = values


def _spoil_actions(file):
    file["data/demo_1/actions"][2, 1] = np.nan


def _wrong_frames(file):
    file["data/demo_1/obs/frame_index"] = np.array([0, 3, 99])


def _no_cameras(file):
    del file["data/demo_1/obs/agentview_rgb"]
    del file["data/demo_1/obs/eye_in_hand_rgb"]


@pytest.mark.parametrize("damage", [_no_cameras, _drop_actions, _cut_states, _spoil_actions, _wrong_frames])
def test_a_damaged_episode_is_named(tmp_path, damage):
    path = write(tmp_path / "a.hdf5")
    with h5py.File(path, "r+") as file:
        damage(file)
    with pytest.raises(DamagedRecord, match=r"a\.hdf5: demo_1"):
        read_all(LiberoHdf5((path,), 2))


def test_files_that_are_not_demonstrations(tmp_path):
    cut = tmp_path / "cut.hdf5"
    cut.write_bytes(write(tmp_path / "whole.hdf5").read_bytes()[:500])
    with pytest.raises(DamagedRecord, match=r"cut\.hdf5"):
        read_all(LiberoHdf5((cut,), 1))
    with h5py.File(tmp_path / "empty.hdf5", "w"):
        pass
    with pytest.raises(BadInput, match=r"empty\.hdf5: data"):
        read_all(LiberoHdf5((tmp_path / "empty.hdf5",), 1))
    with pytest.raises(BadInput, match="at least 3"):
        read_all(LiberoHdf5((tmp_path / "whole.hdf5",), 3))


def test_open_dataset_takes_the_files_of_its_tasks(tmp_path):
    names = task_names("libero_object")
    for number in (0, 1, 2):
        write(tmp_path / f"{names[number]}_demo.hdf5", ours=True, prompt=f"task {number}")
    data = Data(source="libero_hdf5", task_suite="libero_object", tasks=[2, 0], episodes=2)
    assert [file.name for file in task_files(tmp_path, "libero_object", [2])] == [f"{names[2]}_demo.hdf5"]
    dataset = open_dataset(data, tmp_path, SHAPE)
    assert dataset.samples == 2 * 2 * 3
    assert dataset.tokenizer.words == ("0", "2", "task")
    assert dataset.images.shape == (12, 2, 3, 8, 8)
    with pytest.raises(BadInput, match="task 5"):
        open_dataset(data.model_copy(update={"tasks": [5]}), tmp_path, SHAPE)


def test_windows_start_at_their_frame_and_repeat_the_last_action(tmp_path):
    names = task_names("libero_object")
    path = write(tmp_path / f"{names[0]}_demo.hdf5", demos=1, ours=True)
    dataset = open_dataset(Data(source="libero_hdf5", tasks=[0], episodes=1), tmp_path, SHAPE)
    with h5py.File(path) as file:
        actions = file["data/demo_0/actions"][()]
    windows = dataset.statistics.action.unnormalise(dataset.actions(torch.arange(dataset.samples)).numpy())
    np.testing.assert_allclose(windows[1], actions[[3, 4, 5, 6]], atol=1e-6)
    np.testing.assert_allclose(windows[2], actions[[6, 6, 6, 6]], atol=1e-6)
