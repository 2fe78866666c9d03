"""Demonstrations in LIBERO's HDF5 files, as its `scripts/create_dataset.py` writes them, and as ours are.

Ours differ in three things, all readable by either: `data.attrs["upright"]` (LIBERO's frames are upside down),
`data.attrs["frame_stride"]`, and `obs/frame_index`, the control steps that have a frame.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from harness.data.shape import CAMERAS
from harness.data.source import ACTION_WIDTH, Episode, Place
from harness.errors import BadInput, DamagedRecord
from harness.libero.tasks import task_names

DATASETS = dict(zip(CAMERAS, ("agentview_rgb", "eye_in_hand_rgb"), strict=True))
"""The simulator's camera name → LIBERO's dataset name."""
_STATE_PARTS = {"ee_pos": 3, "ee_ori": 3, "gripper_states": 2}


@dataclass(frozen=True)
class LiberoHdf5:
    """The first `episodes_per_task` demonstrations of each file."""

    files: tuple[Path, ...]
    episodes_per_task: int

    @cached_property
    def _index(self) -> list[tuple[Path, str]]:
        return [(path, name) for path in self.files for name in _names(path, self.episodes_per_task)]

    def __len__(self) -> int:
        return len(self._index)

    def read(self, number: int) -> Episode:
        path, name = self._index[number]
        place = Place(path, name)
        with _opened(path) as file:
            data = file["data"]
            prompt, upright = _instruction(path, data.attrs), bool(data.attrs.get("upright", False))
            try:
                return _episode(place, data[name], prompt, upright)
            except (KeyError, OSError, TypeError) as error:
                raise place.damage(None, f"cannot be read: {error}") from None


def task_files(folder: Path, task_suite: str, tasks: list[int]) -> tuple[Path, ...]:
    """The tasks' `<task name>_demo.hdf5`, LIBERO's own naming. Raises BadInput for one that is not there."""
    names = task_names(task_suite)
    files = tuple(folder / f"{names[number]}_demo.hdf5" for number in tasks)
    for number, file in zip(tasks, files, strict=True):
        if not file.is_file():
            found = [path.name for path in folder.glob("*.hdf5")]
            raise BadInput(folder, f"{task_suite} task {number}", file.name, "a file of demonstrations", found)
    return files


def _opened(path: Path) -> Any:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DamagedRecord(f"{path}: not a readable HDF5 file ({error})") from None


def _names(path: Path, limit: int) -> Sequence[str]:
    with _opened(path) as file:
        if "data" not in file:
            raise BadInput(path, "data", None, "the group that LIBERO's demonstrations are in")
        names = sorted((name for name in file["data"] if name.startswith("demo_")), key=lambda name: int(name[5:]))
    if len(names) < limit:
        raise BadInput(path, "data", len(names), f"at least {limit} demonstrations")
    return names[:limit]


def _instruction(path: Path, attributes: Any) -> str:
    try:
        instruction = json.loads(attributes["problem_info"])["language_instruction"]
    except (KeyError, ValueError, TypeError):
        raise BadInput(
            path, "data.attrs.problem_info", None, "JSON that holds language_instruction, as LIBERO writes it"
        ) from None
    # Some of LIBERO's files hold the words as a list.
    return instruction if isinstance(instruction, str) else " ".join(instruction)


def _episode(place: Place, group: Any, prompt: str, upright: bool) -> Episode:
    """Raises DamagedEpisode, KeyError or OSError when the group is not a whole episode."""
    actions = place.numbers("actions", group["actions"][()], (ACTION_WIDTH,))
    observed, steps = group["obs"], len(actions)
    frame_steps = observed["frame_index"][()].astype(np.int64) if "frame_index" in observed else np.arange(steps)
    if len(frame_steps) == 0:
        raise place.damage(None, "no frames")
    if frame_steps[0] < 0 or frame_steps[-1] >= steps or (np.diff(frame_steps) <= 0).any():
        raise place.damage(None, f"obs/frame_index must rise from 0 to below {steps}")
    parts = [
        place.numbers(f"obs/{key}", _at_frames(place, observed, key, frame_steps, steps), (width,))
        for key, width in _STATE_PARTS.items()
    ]
    images = {}
    for camera, key in DATASETS.items():
        if key in observed:
            frames = _at_frames(place, observed, key, frame_steps, steps)
            if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
                raise place.damage(0, f"obs/{key} must be uint8 (F, H, W, 3), found {frames.dtype} {frames.shape}")
            images[camera] = frames if upright else frames[:, ::-1, ::-1]
    if not images:
        raise place.damage(None, f"no camera images; expected one of {', '.join(DATASETS.values())}")
    name = f"{place.file.name} {place.episode}"
    return Episode(name, prompt, frame_steps, images, np.concatenate(parts, 1), actions)


def _at_frames(place: Place, observed: Any, key: str, frame_steps: NDArray[np.int64], steps: int) -> NDArray[Any]:
    """Rows of the steps that have a frame, from a dataset with a row per frame or a row per step."""
    values: NDArray[Any] = observed[key][()]
    if len(values) == len(frame_steps):
        return values
    if len(values) == steps:
        return values[frame_steps]
    raise place.damage(
        min(len(values), steps), f"obs/{key} has {len(values)} rows for {steps} steps and {len(frame_steps)} frames"
    )
