"""Random episodes for throughput runs: no files, no decoding, the same bytes everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.data.shape import ABSENT, InputShape
from harness.data.source import Episode

SAMPLES = 256
"""Enough for any batch to be mixed, few enough for full-size frames to fit in memory."""


@dataclass(frozen=True)
class SyntheticSource:
    """Uniform noise in the shape a model wants, one short instruction per task."""

    shape: InputShape
    tasks: int

    @property
    def files(self) -> Sequence[Path]:
        return ()

    def __len__(self) -> int:
        return self.tasks

    def read(self, number: int) -> Episode:
        random = np.random.default_rng([0, number])
        steps = max(1, SAMPLES // self.tasks)
        size = self.shape.image_size
        return Episode(
            name=f"synthetic task {number}",
            prompt=f"reach for object {number}",
            frame_steps=np.arange(steps),
            images={
                camera: random.integers(0, 256, (steps, size, size, 3), dtype=np.uint8)
                for camera in self.shape.cameras
                if camera != ABSENT
            },
            states=random.uniform(-1, 1, (steps, 8)),
            actions=random.uniform(-1, 1, (steps, 7)),
        )
