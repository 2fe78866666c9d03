"""One task's demonstrations as an HDF5 file in LIBERO's own layout (`scripts/create_dataset.py` of LIBERO).

Two things differ from LIBERO's files, and the file says so: frames are stored at every n-th step, upright, so that
`obs` images have fewer rows than actions (`obs/frame_index` says which); and observations are those *before* each
action.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.libero.geometry import axis_angle
from harness.libero.tasks import Task
from harness.records import Value
from harness.store import disk_errors

if TYPE_CHECKING:
    from harness.libero.demo import Demo

_CAMERA_DATASETS = {"agentview": "agentview_rgb", "robot0_eye_in_hand": "eye_in_hand_rgb"}


class DemosFile(Value):
    """What one HDF5 file holds."""

    name: str
    task: int
    demos: int
    steps: int
    frames: int


def write_demos_file(path: Path, of: Task, spec_json: str, frame_stride: int, demos: Iterator[Demo]) -> DemosFile:
    """Writes `path` whole or not at all. Raises DiskFull."""
    import h5py

    beside = path.with_name(f".{path.name}.{os.getpid()}")
    count = steps = frames = 0
    with disk_errors(path):
        try:
            with h5py.File(beside, "w") as file:
                data = file.create_group("data")
                for index, demo in enumerate(demos):
                    _write_demo(data.create_group(f"demo_{index}"), demo)
                    count, steps, frames = count + 1, steps + len(demo.actions), frames + len(demo.frame_index)
                data.attrs.update(_attributes(of, spec_json, frame_stride))
                data.attrs["num_demos"], data.attrs["total"] = count, steps
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    return DemosFile(name=path.name, task=of.number, demos=count, steps=steps, frames=frames)


def _attributes(of: Task, spec_json: str, frame_stride: int) -> dict[str, Any]:
    content = of.bddl.read_text(encoding="utf-8")
    problem = content.split("(problem", 1)[1].split(")", 1)[0].strip()
    return {
        "env_name": problem,
        "env_args": json.dumps({"type": 1, "env_name": problem, "problem_name": problem.lower()}),
        "problem_info": json.dumps(
            {
                "problem_name": problem.lower(),
                "domain_name": "robosuite",
                "language_instruction": of.instruction,
                "task_language": of.task_language,
            }
        ),
        "bddl_file_name": f"{of.task_suite}/{of.bddl.name}",
        "bddl_file_content": content,
        "macros_image_convention": "opengl",
        "upright": True,
        "frame_stride": frame_stride,
        "initial_states": (
            "draws of the task's own placement initializer from seeded resets, free-standing objects moved by a "
            "uniform jitter and the arm's joints by Gaussian noise; none of the 50 evaluation states"
        ),
        "demos_spec": spec_json,
    }


def _write_demo(group: Any, demo: Demo) -> None:
    steps = len(demo.actions)
    last = np.zeros(steps, dtype=np.uint8)
    last[-1:] = 1
    orientation = np.array([axis_angle(quaternion) for quaternion in demo.quaternions]).reshape(steps, 3)
    group.attrs["num_samples"] = steps
    group.attrs["init_state"] = demo.states[0]
    group.attrs["seed"] = demo.seed
    group.attrs["noisy"] = demo.noisy
    group.attrs["scene_sha256"] = demo.scene_sha256
    group["actions"] = demo.actions
    group["executed_actions"] = demo.executed
    group["states"] = demo.states
    group["robot_states"] = np.concatenate([demo.grippers, demo.positions, demo.quaternions], axis=1)
    group["rewards"] = last
    group["dones"] = last
    obs = group.create_group("obs")
    obs["ee_pos"] = demo.positions
    obs["ee_ori"] = orientation
    obs["ee_states"] = np.concatenate([demo.positions, orientation], axis=1)
    obs["gripper_states"] = demo.grippers
    obs["joint_states"] = demo.joints
    obs["frame_index"] = demo.frame_index
    for camera, frames in demo.frames.items():
        name = _CAMERA_DATASETS.get(camera, f"{camera}_rgb")
        obs.create_dataset(name, data=frames, chunks=(1, *frames.shape[1:]), compression="gzip", compression_opts=1)
