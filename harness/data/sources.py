"""Which reader a suite's `[data]` means."""

from __future__ import annotations

from pathlib import Path

from harness.data.shape import InputShape
from harness.data.source import EpisodeSource
from harness.errors import BadInput
from harness.suite import Data


def open_source(data: Data, folder: Path | None, shape: InputShape) -> EpisodeSource:
    """The episodes of `data` in `folder` (not needed when synthetic).

    Raises:
        BadInput: the folder is not there, or is not what `data` says it is.
    """
    if data.source == "synthetic":
        from harness.data.synthetic import SyntheticSource

        return SyntheticSource(shape, len(data.tasks))
    if folder is None:
        raise BadInput("data", "source", data.source, "a folder of demonstrations beside it")
    if not folder.is_dir():
        raise BadInput("data", "path", str(folder), "a folder that exists", _neighbours(folder))
    if data.source == "lerobot":
        from harness.data.lerobot import LeRobot

        return LeRobot(folder, data.cameras, data.first_episodes)
    if data.source == "dexdata":
        from harness.data.dexdata import DexData

        return DexData(folder, data.cameras, data.first_episodes)
    from harness.data.libero_hdf5 import LiberoHdf5, task_files

    return LiberoHdf5(task_files(folder, data.task_suite, data.tasks), data.episodes)


def _neighbours(folder: Path) -> list[str]:
    return [str(path) for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
