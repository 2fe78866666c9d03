"""Demonstrations in LIBERO's HDF5 files, as its `scripts/create_dataset.py` writes them, and as ours are.

Ours differ in three things, all readable by either: `data.attrs["upright"]` (LIBERO's frames are upside down),
`data.attrs["frame_stride"]`, and `obs/frame_index`, the control steps that have a frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from harness.data.source import Episode
from harness.errors import BadInput, DamagedRecord
from harness.libero.tasks import task_names

CAMERAS = {"agentview": "agentview_rgb", "robot0_eye_in_hand": "eye_in_hand_rgb"}
"""The simulator's camera name → LIBERO's dataset name."""


@dataclass(frozen=True)
class LiberoHdf5:
    """The first `episodes_per_task` demonstrations of each file."""

    files: tuple[Path, ...]
    episodes_per_task: int

    def episodes(self) -> Iterator[Episode]:
        for path in self.files:
            yield from _episodes(path, self.episodes_per_task)


def task_files(folder: Path, task_suite: str, tasks: list[int]) -> tuple[Path, ...]:
    """The tasks' `<task name>_demo.hdf5`, LIBERO's own naming. Raises BadInput for one that is not there."""
    names = task_names(task_suite)
    files = tuple(folder / f"{names[number]}_demo.hdf5" for number in tasks)
    for number, file in zip(tasks, files, strict=True):
        if not file.is_file():
            found = [path.name for path in folder.glob("*.hdf5")]
            raise BadInput(folder, f"{task_suite} task {number}", file.name, "a file of demonstrations", found)
    return files


def _episodes(path: Path, limit: int) -> Iterator[Episode]:
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DamagedRecord(f"{path}: not a readable HDF5 file ({error})") from None
    with file:
        if "data" not in file:
            raise BadInput(path, "data", None, "the group that LIBERO's demonstrations are in")
        data = file["data"]
        prompt = _instruction(path, data.attrs)
        upright = bool(data.attrs.get("upright", False))
        names = sorted((name for name in data if name.startswith("demo_")), key=lambda name: int(name[5:]))
        if len(names) < limit:
            raise BadInput(path, "data", len(names), f"at least {limit} demonstrations")
        for name in names[:limit]:
            try:
                yield _episode(f"{path}: {name}", data[name], prompt, upright)
            except (KeyError, OSError, ValueError) as error:
                raise DamagedRecord(f"{path}: {name} cannot be read: {error}") from None


def _instruction(path: Path, attributes: Any) -> str:
    try:
        instruction = json.loads(attributes["problem_info"])["language_instruction"]
    except (KeyError, ValueError, TypeError):
        raise BadInput(
            path, "data.attrs.problem_info", None, "JSON that holds language_instruction, as LIBERO writes it"
        ) from None
    # Some of LIBERO's files hold the words as a list.
    return instruction if isinstance(instruction, str) else " ".join(instruction)


def _episode(name: str, group: Any, prompt: str, upright: bool) -> Episode:
    """Raises ValueError, KeyError or OSError when the group is not a whole episode."""
    actions = group["actions"][()].astype(np.float64)
    observed = group["obs"]
    steps = len(actions)
    frame_steps = observed["frame_index"][()].astype(np.int64) if "frame_index" in observed else np.arange(steps)
    if steps == 0 or len(frame_steps) == 0:
        raise ValueError("no actions or no frames")
    if actions.shape[1:] != (7,) or not np.isfinite(actions).all():
        raise ValueError(f"actions must be finite and (T, 7), found {actions.shape}")
    if frame_steps[0] < 0 or frame_steps[-1] >= steps or (np.diff(frame_steps) <= 0).any():
        raise ValueError(f"obs/frame_index must rise from 0 to below {steps}")
    parts = [_at_frames(observed, key, frame_steps, steps) for key in ("ee_pos", "ee_ori", "gripper_states")]
    states = np.concatenate(parts, 1).astype(np.float64)
    if states.shape[1] != 8 or not np.isfinite(states).all():
        raise ValueError(f"ee_pos, ee_ori, gripper_states must be finite, 3 + 3 + 2 wide, found {states.shape[1]}")
    images = {}
    for camera, key in CAMERAS.items():
        if key in observed:
            frames = _at_frames(observed, key, frame_steps, steps)
            if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
                raise ValueError(f"obs/{key} must be uint8 (F, H, W, 3), found {frames.dtype} {frames.shape}")
            images[camera] = frames if upright else frames[:, ::-1, ::-1]
    return Episode(name, prompt, frame_steps, images, states, actions)


def _at_frames(observed: Any, key: str, frame_steps: NDArray[np.int64], steps: int) -> NDArray[Any]:
    """Rows of the steps that have a frame, from a dataset with a row per frame or a row per step."""
    values: NDArray[Any] = observed[key][()]
    if len(values) == len(frame_steps):
        return values
    if len(values) == steps:
        return values[frame_steps]
    raise ValueError(f"obs/{key} has {len(values)} rows for {steps} steps and {len(frame_steps)} frames")
