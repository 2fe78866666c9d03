"""Demonstrations as episodes, whatever file format they come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Episode:
    """One demonstration: T control steps, of which F have a camera frame.

    Attributes:
        name: where it came from, for error messages.
        prompt: the instruction.
        frame_steps: int64 (F,), rising; the control step each frame was taken before.
        images: camera name → uint8 (F, H, W, 3), upright. A missing camera is an absent key.
        states: float64 (F, 8): position (3), robosuite's axis-angle (3), gripper joints (2).
        actions: float64 (T, 7), in controller units.
    """

    name: str
    prompt: str
    frame_steps: NDArray[np.int64]
    images: dict[str, NDArray[np.uint8]]
    states: NDArray[np.float64]
    actions: NDArray[np.float64]


class EpisodeSource(Protocol):
    """Yields the same episodes in the same order every time."""

    def episodes(self) -> Iterator[Episode]:
        """Raises BadInput or DamagedRecord, naming file and episode."""
        ...
