"""Demonstrations in LeRobot's layout, v2.1 (a file per episode) and v3.0 (many episodes in a file).

The layout is that of `lerobot/datasets/utils.py` in LeRobot 0.3 (v2.1) and 0.4 (v3.0): tables in Parquet, cameras as
MP4 or as images inside the tables. Images are taken as upright, as every published conversion of LIBERO stores them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.data.pictures import picture
from harness.data.shape import CAMERAS
from harness.data.source import ACTION_WIDTH, STATE_WIDTHS, Episode, Place, camera_keys
from harness.data.video import read_clip
from harness.errors import BadInput, DamagedRecord

AGENTVIEW, WRIST = CAMERAS
USUAL_KEYS = {
    AGENTVIEW: ("image", "observation.images.image", "observation.images.agentview"),
    WRIST: ("wrist_image", "observation.images.image2", "observation.images.wrist_image"),
}
"""openpi `examples/libero/convert_libero_data_to_lerobot.py`, and the set `HuggingFaceVLA/libero`."""
_STATE_KEYS = ("observation.state", "state")
_ACTION_KEYS = ("action", "actions")


@dataclass(frozen=True)
class Entry:
    """One episode as the set's own index tells of it.

    Attributes:
        table: the Parquet file its rows are in.
        clips: image key → the video and the second its first frame is at.
    """

    number: int
    length: int
    prompt: str
    table: Path
    clips: Mapping[str, tuple[Path, float]]


@dataclass(frozen=True)
class LeRobot:
    """A LeRobot data set on disk.

    Attributes:
        cameras: camera → image key, where it is not one of `USUAL_KEYS`.
        first_episodes: only so many; None for all.
    """

    folder: Path
    cameras: Mapping[str, str]
    first_episodes: int | None = None

    @cached_property
    def info(self) -> dict[str, Any]:
        return read_info(self.folder)

    @cached_property
    def entries(self) -> list[Entry]:
        """Raises BadInput or DamagedRecord when the set's own index cannot be used."""
        reader = _entries_v3 if self.info["codebase_version"].startswith("v3.") else _entries_v2
        every = sorted(reader(self.folder, self.info, self._videos), key=lambda entry: entry.number)
        if not every:
            raise BadInput(self.folder, "meta", None, "at least one episode")
        return every[: self.first_episodes]

    @property
    def files(self) -> Sequence[Path]:
        tables = {entry.table for entry in self.entries}
        videos = {file for entry in self.entries for file, _ in entry.clips.values()}
        return sorted({*(self.folder / "meta").rglob("*.*"), *tables, *videos})

    def __len__(self) -> int:
        return len(self.entries)

    def read(self, number: int) -> Episode:
        entry = self.entries[number]
        place = Place(entry.table, f"episode {entry.number}")
        state_key, action_key = self._key(_STATE_KEYS), self._key(_ACTION_KEYS)
        stored = [key for key in self._keys.values() if key not in entry.clips]
        rows = self._rows(place, entry, [state_key, action_key, *stored])
        images = {}
        for camera, key in self._keys.items():
            if key in entry.clips:
                file, seconds = entry.clips[key]
                images[camera] = read_clip(Place(file, place.episode), seconds, entry.length, self.info["fps"])
            else:
                images[camera] = _pictures(place, rows[key].to_pylist())
            self._check_shape(place, key, images[camera])
        return Episode(
            name=f"{self.folder.name} episode {entry.number}",
            prompt=entry.prompt,
            frame_steps=np.arange(entry.length),
            images=images,
            states=place.numbers(state_key, rows[state_key].to_pylist(), STATE_WIDTHS),
            actions=place.numbers(action_key, rows[action_key].to_pylist(), (ACTION_WIDTH,)),
        )

    @cached_property
    def _keys(self) -> dict[str, str]:
        """Camera → its key among the features."""
        kinds = {key: feature.get("dtype") for key, feature in self.info["features"].items()}
        available = [key for key, kind in kinds.items() if kind in ("image", "video")]
        return camera_keys(self.folder, available, USUAL_KEYS, self.cameras)

    @cached_property
    def _videos(self) -> list[str]:
        return [key for key in self._keys.values() if self.info["features"][key]["dtype"] == "video"]

    def _key(self, names: tuple[str, ...]) -> str:
        for name in names:
            if name in self.info["features"]:
                return name
        raise BadInput(_info_file(self.folder), "features", None, f"one of {', '.join(names)}", self.info["features"])

    def _rows(self, place: Place, entry: Entry, columns: list[str]) -> Any:
        """The episode's rows as a table, one for each frame, in order."""
        import pyarrow
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(
                entry.table, columns=["frame_index", *columns], filters=[("episode_index", "=", entry.number)]
            )
        except (pyarrow.ArrowException, OSError) as error:
            raise place.damage(None, f"not a readable Parquet file: {str(error).splitlines()[0]}") from None
        found = table["frame_index"].to_pylist()
        for frame in range(entry.length):
            if frame >= len(found) or found[frame] != frame:
                raise place.damage(frame, f"its row is missing; {len(found)} of {entry.length} rows are there")
        if len(found) > entry.length:
            raise place.damage(entry.length, f"{len(found)} rows where the index says {entry.length}")
        return table

    def _check_shape(self, place: Place, key: str, images: NDArray[np.uint8]) -> None:
        """The shape the set declares, whether it writes (H, W, 3) or (3, H, W)."""
        feature = self.info["features"][key]
        declared = tuple(feature["shape"])
        shape = declared[1:] + declared[:1] if declared[0] == 3 else declared
        if images.shape[1:] != shape:
            raise place.damage(0, f"{key} is {images.shape[1:]}, declared as {shape}")


def _info_file(folder: Path) -> Path:
    return folder / "meta" / "info.json"


def read_info(folder: Path) -> dict[str, Any]:
    """`meta/info.json`. Raises BadInput when the folder is not a LeRobot data set of a version we read."""
    file = _info_file(folder)
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(file, None, None, "a LeRobot data set, which has this file") from None
    except (ValueError, OSError) as error:
        raise DamagedRecord(f"{file}: not readable as JSON: {error}") from None
    version = str(info.get("codebase_version") if isinstance(info, dict) else None)
    if not version.startswith(("v2.", "v3.")):
        raise BadInput(file, "codebase_version", version, "v2.1 or v3.0")
    for key in ("fps", "features", "data_path"):
        if key not in info:
            raise BadInput(file, key, None, "a value here; the key is missing")
    return {**info, "codebase_version": version}


def _entries_v2(folder: Path, info: dict[str, Any], videos: list[str]) -> list[Entry]:
    """`meta/episodes.jsonl`; the chunk of an episode follows from its number."""
    entries = []
    file = folder / "meta" / "episodes.jsonl"
    for row in _json_lines(file):
        number = _value(file, row, "episode_index", int)
        where = {"episode_chunk": number // info.get("chunks_size", 1000), "episode_index": number}
        entries.append(
            Entry(
                number=number,
                length=_value(file, row, "length", int),
                prompt=_prompt(file, number, row.get("tasks")),
                table=folder / info["data_path"].format(**where),
                clips={key: (folder / info["video_path"].format(video_key=key, **where), 0.0) for key in videos},
            )
        )
    return entries


def _entries_v3(folder: Path, info: dict[str, Any], videos: list[str]) -> list[Entry]:
    """`meta/episodes/…/file-….parquet`: each row says which files an episode is in, and where in its videos."""
    import pyarrow
    import pyarrow.parquet

    entries = []
    columns = ["episode_index", "length", "tasks", "data/chunk_index", "data/file_index"]
    for key in videos:
        columns += [f"videos/{key}/{name}" for name in ("chunk_index", "file_index", "from_timestamp")]
    for file in sorted((folder / "meta" / "episodes").rglob("*.parquet")):
        try:
            rows = pyarrow.parquet.read_table(file, columns=columns).to_pylist()
        except (pyarrow.ArrowException, OSError) as error:
            raise DamagedRecord(f"{file}: not a readable index of episodes: {str(error).splitlines()[0]}") from None
        for row in rows:
            missing = next((name for name in columns if row.get(name) is None), None)
            if missing is not None:
                raise BadInput(file, missing, None, "a value for every episode")
            where = {"chunk_index": row["data/chunk_index"], "file_index": row["data/file_index"]}
            entries.append(
                Entry(
                    number=row["episode_index"],
                    length=row["length"],
                    prompt=_prompt(file, row["episode_index"], row["tasks"]),
                    table=folder / info["data_path"].format(**where),
                    clips={key: _clip_v3(folder, info, key, row) for key in videos},
                )
            )
    return entries


def _clip_v3(folder: Path, info: dict[str, Any], key: str, row: dict[str, Any]) -> tuple[Path, float]:
    where = {name: row[f"videos/{key}/{name}"] for name in ("chunk_index", "file_index")}
    return folder / info["video_path"].format(video_key=key, **where), row[f"videos/{key}/from_timestamp"]


def _json_lines(file: Path) -> list[dict[str, Any]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise BadInput(file, None, None, "the index of a LeRobot v2 data set") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise DamagedRecord(f"{file}, line {number}: not JSON: {error}") from None
    return rows


def _value(file: Path, row: dict[str, Any], key: str, kind: Callable[[Any], int]) -> int:
    try:
        return kind(row[key])
    except (KeyError, TypeError, ValueError):
        raise BadInput(file, key, row.get(key), "a whole number for every episode") from None


def _prompt(file: Path, number: int, tasks: Any) -> str:
    """An episode's instruction: the first, where it has several."""
    if isinstance(tasks, list) and tasks and isinstance(tasks[0], str):
        return tasks[0]
    raise BadInput(file, f"episode {number}: tasks", tasks, "a list that begins with the instruction")


def _pictures(place: Place, cells: list[Any]) -> NDArray[np.uint8]:
    """Images stored in a table, each as {bytes, path}: uint8 (n, H, W, 3)."""
    contents = [cell.get("bytes") if isinstance(cell, dict) else None for cell in cells]
    return place.stack([picture(place, frame, io.BytesIO(content or b"")) for frame, content in enumerate(contents)])
