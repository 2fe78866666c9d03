"""Episodes as a data set in LeRobot's v3.0 layout, which `harness.data.lerobot` and LeRobot 0.4 read.

Tables are Parquet with a row group per episode; cameras are H.264 in MP4, many episodes in a file. The layout is that
of `lerobot/datasets/utils.py` in LeRobot 0.4.4. Statistics are those of the whole set (`meta/stats.json`); LeRobot's
own writer keeps them per episode too, which only its tools for taking sets apart read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.data.lerobot import USUAL_KEYS
from harness.data.shape import CAMERAS
from harness.data.source import ACTION_WIDTH, Episode
from harness.data.video import CODEC, PIXEL_FORMAT, VideoWriter
from harness.errors import BadInput
from harness.store import disk_errors

KEYS = {camera: USUAL_KEYS[camera][1] for camera in CAMERAS}
"""Those of `HuggingFaceVLA/libero`, which LeRobot's own LIBERO environment expects."""
STATE_NAMES = ("x", "y", "z", "axis_angle_x", "axis_angle_y", "axis_angle_z", "gripper_left", "gripper_right")
ACTION_NAMES = ("x", "y", "z", "axis_angle_x", "axis_angle_y", "axis_angle_z", "gripper")
_DATA_FILE = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_VIDEO_FILE = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_EPISODES_FILE = "meta/episodes/chunk-000/file-000.parquet"
_CHUNK_FILES, _DATA_MB, _VIDEO_MB = 1000, 100, 200
"""LeRobot's own limits. Rows of states and actions are so small that one table holds a million of them."""
_QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}


@dataclass
class _Camera:
    """The videos of one camera, as they grow."""

    folder: Path
    key: str
    fps: int
    file_index: int = 0
    writer: VideoWriter | None = None
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 3)))
    ends: NDArray[np.float64] = field(default_factory=lambda: np.tile([[np.inf], [-np.inf]], 3))
    shape: tuple[int, ...] = ()
    frames: int = 0

    def add(self, frames: NDArray[np.uint8]) -> dict[str, Any]:
        """Appends an episode; returns where it went."""
        if self.writer is not None and self.writer.path.stat().st_size > _VIDEO_MB * 2**20:
            self.close()
            self.file_index += 1
        if self.writer is None:
            path = self.folder / _VIDEO_FILE.format(video_key=self.key, **self._place())
            path.parent.mkdir(parents=True, exist_ok=True)
            self.writer = VideoWriter(path, self.fps)
        start = self.writer.seconds
        self.writer.add(frames)
        self._count(frames)
        where: dict[str, Any] = {**self._place(), "from_timestamp": start, "to_timestamp": self.writer.seconds}
        return {f"videos/{self.key}/{name}": value for name, value in where.items()}

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def _place(self) -> dict[str, int]:
        return {"chunk_index": self.file_index // _CHUNK_FILES, "file_index": self.file_index % _CHUNK_FILES}

    def _count(self, frames: NDArray[np.uint8]) -> None:
        scaled = frames.reshape(-1, 3) / 255.0
        self.sums += [scaled.sum(0), (scaled**2).sum(0)]
        self.ends = np.stack([np.minimum(self.ends[0], scaled.min(0)), np.maximum(self.ends[1], scaled.max(0))])
        self.shape, self.frames = frames.shape[1:], self.frames + len(frames)

    def statistics(self) -> dict[str, Any]:
        """Per colour, of values in [0, 1], shaped (3, 1, 1)."""
        mean, square = self.sums / (self.frames * self.shape[0] * self.shape[1])
        values = {"mean": mean, "std": np.sqrt(square - mean**2), "min": self.ends[0], "max": self.ends[1]}
        return {name: value.reshape(3, 1, 1).tolist() for name, value in values.items()} | {"count": [self.frames]}

    def feature(self) -> dict[str, Any]:
        height, width, channels = self.shape
        info = {
            "video.height": height,
            "video.width": width,
            "video.codec": "h264" if CODEC == "libx264" else CODEC,
            "video.pix_fmt": PIXEL_FORMAT,
            "video.is_depth_map": False,
            "video.fps": self.fps,
            "video.channels": channels,
            "has_audio": False,
        }
        names = ["height", "width", "channels"]
        return {"dtype": "video", "shape": [height, width, channels], "names": names, "info": info}


def write_lerobot(folder: Path, episodes: Iterable[Episode], fps: int) -> int:
    """Writes a whole set, or nothing; returns how many episodes it holds.

    Args:
        folder: must not exist yet.
        episodes: with a frame for every control step, and all with the same cameras.
        fps: control steps per second.

    Raises:
        BadInput: the folder is there already, or an episode lacks frames.
        DiskFull: there is no room for it.
    """
    if folder.exists():
        raise BadInput("--output", None, str(folder), "a folder that is not there yet")
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    with disk_errors(folder):
        try:
            beside.mkdir(parents=True)
            count = _write(beside, episodes, fps)
            beside.rename(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return count


def _write(folder: Path, episodes: Iterable[Episode], fps: int) -> int:
    import pandas
    import pyarrow
    import pyarrow.parquet

    table_file, index_file = folder / _DATA_FILE.format(chunk_index=0, file_index=0), folder / _EPISODES_FILE
    for file in (table_file, index_file):
        file.parent.mkdir(parents=True)
    cameras: dict[str, _Camera] = {}
    tasks: dict[str, int] = {}
    index: list[dict[str, Any]] = []
    rows: dict[str, list[NDArray[np.float64]]] = {"observation.state": [], "action": []}
    total, schema = 0, _schema()
    with pyarrow.parquet.ParquetWriter(table_file, schema, compression="snappy") as tables:
        for number, episode in enumerate(episodes):
            _check(episode, cameras)
            length = len(episode.actions)
            task = tasks.setdefault(episode.prompt, len(tasks))
            tables.write_table(_rows(episode, schema, number, task, first=total, fps=fps))
            cameras = cameras or {camera: _Camera(folder, KEYS[camera], fps) for camera in episode.images}
            entry = {"episode_index": number, "tasks": [episode.prompt], "length": length}
            entry |= {"data/chunk_index": 0, "data/file_index": 0}
            entry |= {"dataset_from_index": total, "dataset_to_index": total + length}
            for camera, frames in episode.images.items():
                entry |= cameras[camera].add(frames)
            index.append(entry | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
            rows["observation.state"].append(episode.states)
            rows["action"].append(episode.actions)
            total += length
    for one in cameras.values():
        one.close()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(index), index_file, compression="snappy")
    pandas.DataFrame({"task_index": list(tasks.values())}, index=list(tasks)).to_parquet(folder / "meta/tasks.parquet")
    statistics = {key: _statistics(np.concatenate(parts)) for key, parts in rows.items()}
    statistics |= {one.key: one.statistics() for one in cameras.values()}
    _write_json(folder / "meta/stats.json", statistics)
    _write_json(folder / "meta/info.json", _info(list(cameras.values()), fps, len(index), total, len(tasks)))
    return len(index)


def _check(episode: Episode, cameras: dict[str, _Camera]) -> None:
    if len(episode.frame_steps) != len(episode.actions):
        found = f"{len(episode.frame_steps)} frames for {len(episode.actions)} steps"
        raise BadInput(episode.name, "frames", found, "a frame for every control step (--frame-stride 1)")
    if cameras and set(cameras) != set(episode.images):
        raise BadInput(episode.name, "cameras", sorted(episode.images), "the cameras of the first episode", cameras)


def _schema() -> Any:
    import pyarrow as pa

    whole = ("frame_index", "episode_index", "index", "task_index")
    vectors = {"observation.state": len(STATE_NAMES), "action": ACTION_WIDTH}
    fields = [pa.field(name, pa.list_(pa.float32(), width)) for name, width in vectors.items()]
    return pa.schema([*fields, pa.field("timestamp", pa.float32()), *(pa.field(name, pa.int64()) for name in whole)])


def _rows(episode: Episode, schema: Any, number: int, task: int, *, first: int, fps: int) -> Any:
    import pyarrow as pa

    length = len(episode.actions)
    columns = {
        "observation.state": list(episode.states.astype(np.float32)),
        "action": list(episode.actions.astype(np.float32)),
        "timestamp": (np.arange(length) / fps).astype(np.float32),
        "frame_index": np.arange(length),
        "episode_index": np.full(length, number),
        "index": first + np.arange(length),
        "task_index": np.full(length, task),
    }
    return pa.table(columns, schema=schema)


def _statistics(values: NDArray[np.float64]) -> dict[str, Any]:
    found = {"mean": values.mean(0), "std": values.std(0), "min": values.min(0), "max": values.max(0)}
    found |= {name: np.quantile(values, share, axis=0) for name, share in _QUANTILES.items()}
    return {name: value.tolist() for name, value in found.items()} | {"count": [len(values)]}


def _info(cameras: list[_Camera], fps: int, episodes: int, frames: int, tasks: int) -> dict[str, Any]:
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": [len(STATE_NAMES)], "names": {"axes": list(STATE_NAMES)}},
        "action": {"dtype": "float32", "shape": [ACTION_WIDTH], "names": {"axes": list(ACTION_NAMES)}},
    }
    features |= {camera.key: camera.feature() for camera in cameras}
    counters = {"timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64"}
    for name, kind in (counters | {"task_index": "int64"}).items():
        features[name] = {"dtype": kind, "shape": [1], "names": None}
    return {
        "codebase_version": "v3.0",
        "robot_type": "panda",
        "total_episodes": episodes,
        "total_frames": frames,
        "total_tasks": tasks,
        "chunks_size": _CHUNK_FILES,
        "data_files_size_in_mb": _DATA_MB,
        "video_files_size_in_mb": _VIDEO_MB,
        "fps": fps,
        "splits": {"train": f"0:{episodes}"},
        "data_path": _DATA_FILE,
        "video_path": _VIDEO_FILE,
        "features": features,
    }


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")
