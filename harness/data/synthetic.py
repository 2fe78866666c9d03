"""Random episodes for throughput runs: no files, no decoding, the same bytes everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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

    def episodes(self) -> Iterator[Episode]:
        random = np.random.default_rng(0)
        steps = max(1, SAMPLES // self.tasks)
        size = self.shape.image_size
        for task in range(self.tasks):
            yield Episode(
                name=f"synthetic task {task}",
                prompt=f"reach for object {task}",
                frame_steps=np.arange(steps),
                images={
                    camera: random.integers(0, 256, (steps, size, size, 3), dtype=np.uint8)
                    for camera in self.shape.cameras
                    if camera != ABSENT
                },
                states=random.uniform(-1, 1, (steps, 8)),
                actions=random.uniform(-1, 1, (steps, 7)),
            )
