"""`harness demos --format lerobot`: what the expert made, as a LeRobot set; wrong options are told before any work."""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from harness.data.lerobot import LeRobot
from harness.data.libero_hdf5 import LiberoHdf5
from harness.demonstrations import write_as_lerobot
from harness.errors import BadInput
from harness.libero.demos import DemosRecord, DemosSpec
from harness.libero.demos_file import DemosFile

STEPS, SIZE = 6, 16


def made(folder: Path, stride: int) -> DemosRecord:
    """Two tasks with a demonstration each, as `harness.libero.demos_file` lays them out."""
    files = []
    for task in (0, 1):
        name = f"task{task}_demo.hdf5"
        kept = np.arange(0, STEPS, stride)
        with h5py.File(folder / name, "w") as file:
            data = file.create_group("data")
            data.attrs["problem_info"] = json.dumps({"language_instruction": f"move bowl {task}"})
            data.attrs["upright"] = True
            group = data.create_group("demo_0")
            group["actions"] = np.arange(STEPS * 7).reshape(STEPS, 7) / 64 - task / 4
            observed = group.create_group("obs")
            for place, camera in enumerate(("agentview_rgb", "eye_in_hand_rgb")):
                levels = 20 * kept[:, None, None, None] + 40 * place + np.zeros((len(kept), SIZE, SIZE, 3))
                observed[camera] = levels.astype(np.uint8)
            observed["ee_pos"] = np.arange(STEPS)[:, None] / 8 + np.zeros(3)
            observed["ee_ori"] = np.tile([3.0, 0, 0], (STEPS, 1))
            observed["gripper_states"] = np.tile([0.5, -0.5], (STEPS, 1))
            observed["frame_index"] = kept
        files.append(DemosFile(name=name, task=task, demos=1, steps=STEPS, frames=len(kept)))
    spec = DemosSpec(task_suite="libero_object", tasks=[0, 1], episodes=1, frame_stride=stride)
    return DemosRecord(spec=spec, files=files, discarded=0, wall_seconds=0.0, mujoco="3.3.2", robosuite="1.4.0")


def test_the_set_holds_what_the_files_hold(tmp_path):
    record = made(tmp_path, stride=1)
    write_as_lerobot(record, tmp_path, tmp_path / "set")
    source = LiberoHdf5(tuple(tmp_path / file.name for file in record.files), 1)
    found = LeRobot(tmp_path / "set", {})
    assert len(found) == 2 and found.info["fps"] == 20
    for number in range(2):
        one, other = found.read(number), source.read(number)
        assert one.prompt == other.prompt == f"move bowl {number}"
        np.testing.assert_array_equal(one.states, other.states)
        np.testing.assert_array_equal(one.actions, other.actions)
        for camera, frames in other.images.items():
            assert np.abs(one.images[camera].astype(int) - frames).max() <= 3


def test_steps_without_frames_cannot_become_a_set(tmp_path):
    with pytest.raises(BadInput, match=r"'3 frames for 6 steps'.*--frame-stride 1"):
        write_as_lerobot(made(tmp_path, stride=2), tmp_path, tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--format", "rlds"], "--format = 'rlds': expected a format (hdf5, lerobot)"),
        (["--format", "lerobot"], "--output: expected a folder with --format lerobot"),
        (["-o", "set"], "--output = 'set': expected a folder with --format lerobot, and nothing without"),
        (["--format", "lerobot", "-o", "."], "--output = '.': expected a folder that is not there yet"),
        (["--format", "lerobot", "-o", "set", "--frame-stride", "3"], "--frame-stride = 3: expected 1"),
    ],
)
def test_wrong_options_are_told_before_any_work(tmp_path, options, says):
    command = [sys.executable, "-m", "harness", "demos", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())
