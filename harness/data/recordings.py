"""All frames and steps of a set, decoded and resized once, kept on disk and shared by every rank through its pages.

Decoding is the slow part of reading demonstrations: a set of 270 000 LIBERO frames takes minutes to decode, and a
training run wants its frames in random order. So the first rank that needs a set writes it out in the size the model
looks at, and from then on a frame is one read from a file that the ranks of a machine share.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from harness.data.images import resize
from harness.data.source import DamagedEpisode, Episode, EpisodeSource
from harness.errors import BadInput, DamagedRecord
from harness.records import Record, Value
from harness.store import disk_errors, read_record, write_record

_RECORD, _IMAGES, _STEPS = "recordings.json", "images.bin", "steps.npz"
OnProgress = Callable[[str], None]
"""Told what is being done whenever it has come further."""
_POLL_SECONDS = 0.1


class View(Value):
    """How frames are wanted."""

    cameras: tuple[str, ...]
    """Camera slots, in order; one that a set lacks is black."""
    image_size: int


class RecordingsRecord(Record):
    """`recordings.json`, written last: its presence means that the folder is whole."""

    view: View
    episodes: int
    frames: int
    steps: int
    state_width: int
    prompts: tuple[str, ...]
    damaged: tuple[str, ...]
    """Episodes that were left out, and what was wrong with each."""
    content_sha256: str
    """Over all instructions, states, actions and resized frames, in order."""


@dataclass(frozen=True)
class Steps:
    """Everything but the images. N frames of E episodes with T control steps in all.

    Attributes:
        states: float64 (N, 7 or 8), as the episodes have them.
        frame_steps: int64 (N,); the row of `actions` each frame was taken before.
        last_steps: int64 (N,); the last row of the same episode.
        prompts: int64 (N,); which instruction.
        cameras: bool (N, cameras); which camera slots are filled.
        actions: float64 (T, 7).
    """

    states: NDArray[np.float64]
    frame_steps: NDArray[np.int64]
    last_steps: NDArray[np.int64]
    prompts: NDArray[np.int64]
    cameras: NDArray[np.bool_]
    actions: NDArray[np.float64]


@dataclass(frozen=True)
class Recordings:
    """A set, ready to be sampled from.

    Attributes:
        images: uint8 (N, cameras, 3, S, S), in pages that are read when they are looked at.
        folder: where they are kept; None where they go with the process.
    """

    record: RecordingsRecord
    images: NDArray[np.uint8]
    steps: Steps
    folder: Path | None


def open_recordings(
    source: EpisodeSource, view: View, cache: Path | None, *, skip_damaged: bool, on_progress: OnProgress
) -> Recordings:
    """The recordings of a source, from the cache or made now; the other ranks of a machine wait for the one that does.

    Args:
        cache: folder for sets that were made before; without one, the set is made anew and goes with the process.
        skip_damaged: leaves damaged episodes out, and names them in the record.

    Raises:
        BadInput: the source is not what the suite says, or no episode of it is whole.
        DamagedEpisode: an episode is damaged and `skip_damaged` is false.
        DiskFull: there is no room for the frames.
    """
    if cache is None:
        with tempfile.TemporaryDirectory(prefix="harness-") as name:  # the pages outlive their file's name
            _make(source, view, Path(name), skip_damaged, on_progress)
            return _load(Path(name), kept=False)
    folder = cache / _key(source, view, skip_damaged)
    cache.mkdir(parents=True, exist_ok=True)
    lock = folder.with_suffix(".lock")

    def tell(text: str) -> None:
        lock.write_text(text)
        on_progress(text)

    with _locked(lock, on_progress):
        if not (folder / _RECORD).exists():
            beside = folder.with_suffix(".part")
            shutil.rmtree(beside, ignore_errors=True)  # of a maker that was killed
            beside.mkdir()
            try:
                _make(source, view, beside, skip_damaged, tell)
                beside.rename(folder)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
    return _load(folder, kept=True)


def _key(source: EpisodeSource, view: View, skip_damaged: bool) -> str:
    """Of the files as they are now: a set that was added to or replaced is another set."""
    digest = hashlib.sha256(f"{type(source).__name__} {len(source)} {view.digest()} {skip_damaged}".encode())
    for file in source.files:
        facts = file.stat()
        digest.update(f"{file.resolve()} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _locked(file: Path, on_progress: OnProgress) -> Iterator[None]:
    """Holds the lock. Whoever waits for it tells what its holder wrote into it, and so is as alive as that one is."""
    with file.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                on_progress(f"waiting: elsewhere {file.read_text()}")
                time.sleep(_POLL_SECONDS)
        yield


def _make(source: EpisodeSource, view: View, folder: Path, skip_damaged: bool, on_progress: OnProgress) -> None:
    content = hashlib.sha256()
    damaged: list[str] = []
    prompts: dict[str, int] = {}
    parts: list[Steps] = []
    steps_before = 0
    with disk_errors(folder / _IMAGES), (folder / _IMAGES).open("wb") as images:
        for number in range(len(source)):
            try:
                episode = source.read(number)
            except DamagedEpisode as fault:
                if not skip_damaged:
                    raise
                damaged.append(str(fault))
                continue
            part = _steps_of(episode, prompts.setdefault(episode.prompt, len(prompts)), view, steps_before)
            content.update(f"{episode.prompt}\n{part.states.shape} {part.actions.shape}\n".encode())
            content.update(part.states.tobytes() + part.actions.tobytes() + part.frame_steps.tobytes())
            _write_frames(episode, view, images, content)
            parts.append(part)
            steps_before += len(part.actions)
            on_progress(f"reading episode {number + 1} of {len(source)}")
    if not parts:
        raise BadInput("data", "episodes", len(source), f"at least one whole episode; the first fault: {damaged[0]}")
    widths = {part.states.shape[1] for part in parts}
    if len(widths) > 1:
        raise BadInput("data", "states", sorted(widths), "states of one width in all episodes")
    steps = Steps(*(np.concatenate([getattr(part, name) for part in parts]) for name in Steps.__annotations__))
    with disk_errors(folder / _STEPS):
        np.savez(folder / _STEPS, **vars(steps))
    write_record(
        folder / _RECORD,
        RecordingsRecord(
            view=view,
            episodes=len(parts),
            frames=len(steps.states),
            steps=len(steps.actions),
            state_width=widths.pop(),
            prompts=tuple(prompts),
            damaged=tuple(damaged),
            content_sha256=content.hexdigest(),
        ),
    )


def _steps_of(episode: Episode, prompt: int, view: View, steps_before: int) -> Steps:
    frames = len(episode.frame_steps)
    return Steps(
        states=episode.states,
        frame_steps=steps_before + np.asarray(episode.frame_steps, dtype=np.int64),
        last_steps=np.full(frames, steps_before + len(episode.actions) - 1, dtype=np.int64),
        prompts=np.full(frames, prompt, dtype=np.int64),
        cameras=np.tile(np.array([camera in episode.images for camera in view.cameras]), (frames, 1)),
        actions=episode.actions,
    )


def _write_frames(episode: Episode, view: View, file: BinaryIO, content: hashlib._Hash) -> None:
    frames = stacked(episode.images, view)
    if len(frames) != len(episode.frame_steps):
        raise ValueError(f"{episode.name}: {len(frames)} images for {len(episode.frame_steps)} frames")
    content.update(frames.data)
    file.write(frames.data)


def stacked(images: dict[str, NDArray[np.uint8]], view: View) -> NDArray[np.uint8]:
    """Camera → (F, H, W, 3) as one uint8 (F, cameras, 3, S, S); black where there is no such camera."""
    count = len(next(iter(images.values()))) if images else 0
    every = np.zeros((count, len(view.cameras), 3, view.image_size, view.image_size), np.uint8)
    for number, camera in enumerate(view.cameras):
        if camera in images:
            every[:, number] = resize(images[camera], view.image_size).transpose(0, 3, 1, 2)
    return every


def _load(folder: Path, *, kept: bool) -> Recordings:
    record = read_record(folder / _RECORD, RecordingsRecord)
    size = record.view.image_size
    shape = (record.frames, len(record.view.cameras), 3, size, size)
    try:
        # Copy on write: torch wants memory it may write to, the file must stay as it is.
        images = np.memmap(folder / _IMAGES, dtype=np.uint8, mode="c", shape=shape)
        with np.load(folder / _STEPS, allow_pickle=False) as file:
            steps = Steps(**{name: file[name] for name in Steps.__annotations__})
    except (OSError, ValueError, KeyError) as error:
        raise DamagedRecord(f"{folder}: the kept frames cannot be read ({error}); delete this folder") from None
    return Recordings(record, images, steps, folder if kept else None)
