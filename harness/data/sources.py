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
    _check_folder("path", folder)
    if data.source == "lerobot":
        from harness.data.lerobot import LeRobot

        return LeRobot(folder, data.cameras, data.first_episodes)
    if data.source == "dexdata":
        from harness.data.dexdata import DexData

        return DexData(folder, data.cameras, data.first_episodes)
    from harness.data.libero_hdf5 import LiberoHdf5, task_files

    return LiberoHdf5(task_files(folder, data.task_suite, data.tasks), data.episodes)


def check_paths(data: Data) -> None:
    """Whether what `data` names is there, as far as can be told at a glance and before anything is started.

    Raises:
        BadInput: a folder is not there, or holds something else.
    """
    if data.tokenizer is not None:
        _check_folder("tokenizer", Path(data.tokenizer))
    if data.path is None or data.source not in ("libero_hdf5", "lerobot", "dexdata"):
        return
    folder = Path(data.path)
    _check_folder("path", folder)
    if data.source == "lerobot":
        from harness.data.lerobot import read_info

        read_info(folder)
    elif data.source == "dexdata":
        if next(folder.rglob("*.jsonl"), None) is None:
            raise BadInput("data", "path", data.path, "a folder of Dexdata, one .jsonl file per episode")
    else:
        from harness.data.libero_hdf5 import task_files

        task_files(folder, data.task_suite, data.tasks)


def _check_folder(key: str, folder: Path) -> None:
    if not folder.is_dir():
        beside = [str(path) for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
        raise BadInput("suite", f"data.{key}", str(folder), "a folder that exists", beside)
