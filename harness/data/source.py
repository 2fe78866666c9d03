"""Demonstrations as episodes, whatever file format they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadInput, DamagedRecord

STATE_WIDTHS = (7, 8)
"""Position (3), axis-angle (3), and one number for the gripper (dexdata) or two finger joints (LIBERO)."""
ACTION_WIDTH = 7


@dataclass(frozen=True)
class Episode:
    """One demonstration: T control steps, of which F have a camera frame.

    Attributes:
        name: where it came from, for error messages.
        prompt: the instruction.
        frame_steps: int64 (F,), rising; the control step each frame was taken before.
        images: camera name → uint8 (F, H, W, 3), upright. A missing camera is an absent key.
        states: float64 (F, 7 or 8): position (3), robosuite's axis-angle (3), gripper (see `STATE_WIDTHS`).
        actions: float64 (T, 7), in controller units.
    """

    name: str
    prompt: str
    frame_steps: NDArray[np.int64]
    images: dict[str, NDArray[np.uint8]]
    states: NDArray[np.float64]
    actions: NDArray[np.float64]


class EpisodeSource(Protocol):
    """A set of episodes that are read one by one. Reading one twice gives the same.

    Attributes:
        files: all that the episodes are read from; when none of them changed, neither did the episodes.
    """

    @property
    def files(self) -> Sequence[Path]: ...

    def __len__(self) -> int:
        """Number of episodes."""
        ...

    def read(self, number: int) -> Episode:
        """Raises DamagedEpisode, naming file and frame."""
        ...


class DamagedEpisode(DamagedRecord):
    """An episode that cannot be read whole. `skip_damaged` in a suite's `[data]` leaves such ones out.

    Args:
        file: the file at fault.
        episode: which of its episodes, in the format's own words; empty where a file holds only one.
        frame: the first frame (or control step) that is wrong; None when the file cannot be read at all.
        reason: what is wrong with it.
    """

    def __init__(self, file: Path, episode: str, frame: int | None, reason: str) -> None:
        self.file, self.frame = file, frame
        where = ", ".join(part for part in (episode, "" if frame is None else f"frame {frame}") if part)
        super().__init__(f"{file}: {where}{': ' if where else ''}{reason}")


@dataclass(frozen=True)
class Place:
    """Where an episode's numbers stand, for errors about them."""

    file: Path
    episode: str = ""

    def damage(self, frame: int | None, reason: str) -> DamagedEpisode:
        return DamagedEpisode(self.file, self.episode, frame, reason)

    def numbers(self, name: str, rows: Sequence[object] | NDArray[Any], widths: tuple[int, ...]) -> NDArray[np.float64]:
        """Rows as float64 (n, width), all finite. Raises DamagedEpisode with the first row at fault."""
        for frame, row in enumerate(rows):
            shape = np.asarray(row, dtype=object).shape
            if shape not in [(width,) for width in widths]:
                wanted = " or ".join(str(width) for width in widths)
                raise self.damage(frame, f"{name} must be {wanted} numbers, found shape {shape}")
        try:
            values = np.asarray(list(rows), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise self.damage(None, f"{name} must be numbers, all rows as wide: {error}") from None
        if len(values) == 0:
            raise self.damage(None, f"no {name}")
        wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(wrong):
            raise self.damage(int(wrong[0]), f"{name} is not finite: {values[wrong[0]].tolist()}")
        return values

    def stack(self, frames: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """Frames as one uint8 (n, H, W, 3). Raises DamagedEpisode where one has another size than the first."""
        for number, frame in enumerate(frames):
            if frame.shape != frames[0].shape:
                raise self.damage(number, f"the image is {frame.shape}, the first was {frames[0].shape}")
        return np.stack(frames)


def camera_keys(
    folder: Path, available: Sequence[str], usual: Mapping[str, Sequence[str]], named: Mapping[str, str]
) -> dict[str, str]:
    """Which key of a data set each of the simulator's cameras is under.

    Args:
        folder: the data set, for errors.
        available: its image keys.
        usual: camera → the keys that published conversions of LIBERO use for it.
        named: camera → key, as the suite says; wins.

    Raises:
        BadInput: a named key is not there, or none is known to be a camera.
    """
    for camera, key in named.items():
        if key not in available:
            raise BadInput("suite", f"data.cameras.{camera}", key, f"an image key of {folder}", available)
    found = {camera: key for camera, keys in usual.items() for key in keys if key in available}
    found |= named
    if not found:
        raise BadInput(folder, "images", ", ".join(available) or None, "a known camera, or data.cameras in the suite")
    return found
