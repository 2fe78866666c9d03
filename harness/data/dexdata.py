"""Demonstrations in Dexdata, Dexbotic's own format: a JSON-lines file per episode, a line per frame.

As Dexbotic's `docs/Data.md` and `dexbotic/data/dataset/dex_dataset.py` describe it. Images are files of their own or
frames of an MP4. Dexbotic's `index_cache.json` holds nothing but line counts, so it is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.data.pictures import picture
from harness.data.shape import CAMERAS
from harness.data.source import (
    ACTION_WIDTH,
    STATE_WIDTHS,
    DamagedEpisode,
    Episode,
    Place,
    camera_keys,
)
from harness.data.video import read_frames
from harness.errors import BadInput

_IMAGE_PREFIX = "images_"
USUAL_KEYS = {camera: (f"{_IMAGE_PREFIX}{number}",) for number, camera in enumerate(CAMERAS, 1)}
"""Main view first, then the hand's (`docs/Data.md`)."""
_MEDIA_FOLDERS = (".", "video", "image")
"""Where a `url` is looked for, below the data set's folder: Dexbotic's `data_path_prefix` for LIBERO."""
_GRIPPER = 6
"""The dimension that `non_delta_mask` keeps (`data_source/libero_official.py`)."""


@dataclass(frozen=True)
class DexData:
    """A Dexdata folder.

    Attributes:
        cameras: camera → image key, where it is not one of `USUAL_KEYS`.
        first_episodes: only so many, in the order of file names; None for all.
    """

    folder: Path
    cameras: Mapping[str, str]
    first_episodes: int | None = None

    @cached_property
    def episodes(self) -> list[Path]:
        """The episodes' files. Raises BadInput when there is none."""
        found = sorted(self.folder.rglob("*.jsonl"))
        if not found:
            raise BadInput(self.folder, None, None, "a folder of Dexdata, one .jsonl file per episode")
        return found[: self.first_episodes]

    @property
    def files(self) -> Sequence[Path]:
        media = {path for name in _MEDIA_FOLDERS[1:] for path in (self.folder / name).rglob("*.*")}
        return sorted({*self.episodes, *media})

    def __len__(self) -> int:
        return len(self.episodes)

    def read(self, number: int) -> Episode:
        place = Place(self.episodes[number])
        lines = _lines(place)
        available = [key for key in lines[0] if key.startswith(_IMAGE_PREFIX)]
        keys = camera_keys(place.file, available, USUAL_KEYS, self.cameras)
        states = place.numbers("state", [line.get("state", ()) for line in lines], STATE_WIDTHS)
        if "action" in lines[0]:
            actions = place.numbers("action", [line.get("action", ()) for line in lines], (ACTION_WIDTH,))
        else:
            actions = _changes(place, states)
            lines, states = lines[:-1], states[:-1]
        return Episode(
            name=str(place.file.relative_to(self.folder)),
            prompt=_prompt(place, lines[0]),
            frame_steps=np.arange(len(lines)),
            images={camera: self._images(place, [line.get(key) for line in lines]) for camera, key in keys.items()},
            states=states,
            actions=actions,
        )

    def _images(self, place: Place, cells: list[Any]) -> NDArray[np.uint8]:
        """uint8 (n, H, W, 3)."""
        for frame, cell in enumerate(cells):
            if not isinstance(cell, dict) or cell.get("type") not in ("image", "video") or "url" not in cell:
                raise place.damage(frame, 'an image must be {"type": "image" or "video", "url": …}')
        if any(cell["type"] != "video" for cell in cells):
            pictures = [picture(place, frame, self._file(place, frame, cell)) for frame, cell in enumerate(cells)]
            return place.stack(pictures)
        return self._video_frames(place, cells)

    def _video_frames(self, place: Place, cells: list[dict[str, Any]]) -> NDArray[np.uint8]:
        """Frames of one video; Dexdata never spreads an episode's view over two."""
        for frame, cell in enumerate(cells):
            if cell["url"] != cells[0]["url"] or not isinstance(cell.get("frame_idx"), int) or cell["frame_idx"] < 0:
                raise place.damage(frame, f"a frame_idx of {cells[0]['url']} is expected, found {cell}")
        file = self._file(place, 0, cells[0])
        return read_frames(Place(file), np.array([cell["frame_idx"] for cell in cells], dtype=np.int64))

    def _file(self, place: Place, frame: int, cell: dict[str, Any]) -> Path:
        candidates: list[Path] = [
            place.file.parent / cell["url"],
            *(self.folder / name / cell["url"] for name in _MEDIA_FOLDERS),
        ]
        for candidate in candidates:
            if candidate.is_file():
                return candidate
        raise place.damage(
            frame, f"no file {cell['url']} beside it, in {self.folder}, or in its video and image folders"
        )


def _lines(place: Place) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    try:
        text = place.file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise place.damage(None, f"not readable: {error}") from None
    for line in filter(str.strip, text.splitlines()):
        try:
            frame = json.loads(line)
        except ValueError as error:
            raise place.damage(len(lines), f"its line is not JSON: {error}") from None
        if not isinstance(frame, dict) or not frame.get("is_robot", True):
            raise place.damage(len(lines), "not a frame of a robot's episode")
        lines.append(frame)
    if len(lines) < 2:
        raise place.damage(None, f"an episode has at least 2 frames, found {len(lines)}")
    return lines


def _prompt(place: Place, line: dict[str, Any]) -> str:
    prompt = line.get("prompt")
    if not isinstance(prompt, str):
        raise place.damage(0, f"prompt must be the instruction, found {prompt!r}")
    return prompt


def _changes(place: Place, states: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is done where a set gives no actions: the change to the next state, the gripper as it then is. (n-1, 7).

    `AddAction` and then `DeltaAction` of `dexbotic/data/dataset/transform/action.py`, in the order CogACT uses them.
    """
    if states.shape[1] != ACTION_WIDTH:
        raise DamagedEpisode(place.file, "", 0, f"no action, and a state of {states.shape[1]} numbers cannot stand in")
    actions = np.diff(states, axis=0)
    actions[:, _GRIPPER] = states[1:, _GRIPPER]
    return actions
