"""Safetensors on disk, in one file or in shards with an index. Nothing here can run code from a file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from harness.errors import BadInput, DamagedRecord
from harness.store import write_atomically

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD_BYTES = 5 * 10**9
"""Largest shard, Hugging Face's own default."""

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class Stored(NamedTuple):
    """Where a tensor lies, and what it is.

    Attributes:
        size: in bytes.
    """

    file: Path
    shape: tuple[int, ...]
    size: int


class Tensors:
    """The tensors of a checkpoint by name, read one by one. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Opens a file, or the one or the several files of a folder.

        Raises:
            BadInput: there is no checkpoint, or only a pickled one.
            DamagedRecord: a file is cut off or is no safetensors.
        """
        self.path = path
        self._stack = ExitStack()
        self._open: dict[Path, Any] = {}
        self.stored: dict[str, Stored] = {}
        try:
            for file in _files(path):
                self._read(file)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Tensors:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._open[self.stored[name].file].get_tensor(name)
        return tensor

    def _read(self, file: Path) -> None:
        try:
            opened = self._stack.enter_context(safe_open(file, framework="pt"))
            for name in opened.keys():  # noqa: SIM118 (not a dict)
                self.stored[name] = _stored(file, opened.get_slice(name))
        except (OSError, SafetensorError) as error:
            raise DamagedRecord(f"{file}: not a readable safetensors file ({error})") from None
        self._open[file] = opened


def _stored(file: Path, part: Any) -> Stored:
    shape = tuple(part.get_shape())
    bits = re.search(r"\d+", part.get_dtype())  # F32, BF16, F8_E4M3, I64; BOOL is a byte
    return Stored(file, shape, math.prod(shape) * (int(bits[0]) // 8 if bits else 1))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        if (path / INDEX).is_file():
            return _shards(path / INDEX)
        path = path / WEIGHTS
        if not path.is_file():
            beside = sorted(file.name for file in path.parent.iterdir() if file.suffix in _PICKLES)
            pickled = f"; {', '.join(beside)} may be pickled, which is never read" if beside else ""
            raise BadInput(path.parent, None, None, f"{WEIGHTS} or {INDEX} in this folder{pickled}")
    if path.suffix in _PICKLES:
        raise BadInput(path, None, None, "safetensors; a pickled checkpoint can run code and is never read")
    if not path.is_file():
        raise BadInput(path, None, None, "a checkpoint: a safetensors file, or a folder that holds one")
    return _shards(path) if path.name.endswith(".index.json") else [path]


def _shards(index: Path) -> list[Path]:
    """The files an index names, which must lie beside it."""
    try:
        names = set(json.loads(index.read_text())["weight_map"].values())
        files = [index.parent / name for name in sorted(names)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedRecord(f"{index}: not an index of safetensors shards ({error!r})") from None
    if not files or any(file.parent != index.parent for file in files):
        raise DamagedRecord(f"{index}: names no files, or files outside of its folder")
    return files


def write_tensors(
    folder: Path, sizes: Mapping[str, int], tensor: Callable[[str], Tensor], shard_bytes: int = SHARD_BYTES
) -> list[Path]:
    """Writes a checkpoint: one file when it fits, else shards and their index. At most one shard is in memory.

    Args:
        sizes: bytes of each tensor, by name, in the order they are to be written.
        tensor: gives a tensor by name.

    Returns:
        The files with tensors. Raises DiskFull.
    """
    from safetensors.torch import save

    shards = list(_split(sizes, shard_bytes))
    files = [folder / WEIGHTS]
    if len(shards) > 1:
        files = [folder / f"model-{n:05}-of-{len(shards):05}.safetensors" for n in range(1, len(shards) + 1)]
    folder.mkdir(parents=True, exist_ok=True)
    for names, file in zip(shards, files, strict=True):
        write_atomically(file, save({name: tensor(name).contiguous() for name in names}, {"format": "pt"}))
    if len(shards) > 1:
        weight_map = {name: file.name for names, file in zip(shards, files, strict=True) for name in names}
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}
        write_atomically(folder / INDEX, json.dumps(index, indent=1) + "\n")
    return files


def _split(sizes: Mapping[str, int], shard_bytes: int) -> Iterator[list[str]]:
    shard: list[str] = []
    filled = 0
    for name, size in sizes.items():
        if shard and filled + size > shard_bytes:
            yield shard
            shard, filled = [], 0
        shard.append(name)
        filled += size
    yield shard
