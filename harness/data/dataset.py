"""Episodes as samples in memory, and the batches of a rank as a pure function of the step."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.data.batch import Batch, Observation
from harness.data.libero_hdf5 import LiberoHdf5, task_files
from harness.data.shape import InputShape
from harness.data.source import Episode, EpisodeSource
from harness.data.statistics import ACTION_FLOOR, STATE_FLOOR, Statistics, moments
from harness.data.synthetic import SyntheticSource
from harness.data.tokens import WordTokenizer
from harness.data.transforms import augment, resize, tool_frame
from harness.errors import BadInput
from harness.suite import Data


@dataclass(frozen=True)
class Dataset:
    """All samples, resized and normalised. A sample is a control step that has a camera frame.

    Attributes:
        images: uint8 (N, cameras, 3, S, S).
        image_masks: bool (N, cameras).
        input_ids: int64 (N, slots). attention_mask: bool (N, slots).
        states: float32 (N, state dimensions), normalised.
        actions: float32 (N, chunk, action dimensions), normalised; past the end the last action is repeated.
        cameras: the cameras some episode has.
    """

    shape: InputShape
    images: Tensor
    image_masks: Tensor
    input_ids: Tensor
    attention_mask: Tensor
    states: Tensor
    actions: Tensor
    cameras: tuple[str, ...]
    statistics: Statistics
    tokenizer: WordTokenizer
    content_sha256: str

    @property
    def samples(self) -> int:
        return len(self.states)


def open_dataset(data: Data, folder: Path | None, shape: InputShape) -> Dataset:
    """Reads all episodes of `data` from `folder` (not needed when synthetic) into the shape a model wants.

    Raises:
        BadInput: the folder or a file is not what `data` asks for.
        DamagedRecord: an episode cannot be read.
    """
    source: EpisodeSource
    if data.source == "synthetic":
        source = SyntheticSource(shape, len(data.tasks))
    elif folder is None:
        raise BadInput("data", "source", data.source, "a folder of demonstrations beside it")
    else:
        source = LiberoHdf5(task_files(folder, data.task_suite, data.tasks), data.episodes)
    return dataset_of(list(source.episodes()), shape)


def dataset_of(episodes: list[Episode], shape: InputShape) -> Dataset:
    """The samples of these episodes. Raises BadInput for instructions the model has no room for."""
    tokenizer = WordTokenizer.of((episode.prompt for episode in episodes), shape)
    statistics = Statistics(
        state=moments((tool_frame(episode.states) for episode in episodes), STATE_FLOOR),
        action=moments((episode.actions for episode in episodes), ACTION_FLOOR),
    )
    images, masks = zip(*(frames(episode.images, shape) for episode in episodes), strict=True)
    encoded = [tokenizer.encode(episode.prompt) for episode in episodes]
    repeats = [len(episode.frame_steps) for episode in episodes]
    parts = {
        "images": np.concatenate(images),
        "image_masks": np.repeat(np.stack(masks), repeats, axis=0),
        "input_ids": np.repeat(np.stack([ids for ids, _ in encoded]), repeats, axis=0),
        "attention_mask": np.repeat(np.stack([mask for _, mask in encoded]), repeats, axis=0),
        "states": pad(np.concatenate([states(episode.states, statistics) for episode in episodes]), shape.state_dim),
        "actions": pad(
            np.concatenate([_windows(episode, statistics, shape) for episode in episodes]), shape.action_dim
        ),
    }
    content = hashlib.sha256()
    for name, values in parts.items():
        content.update(f"{name} {values.shape} {values.dtype}".encode())
        content.update(np.ascontiguousarray(values).tobytes())
    seen = {camera for episode in episodes for camera in episode.images}
    return Dataset(
        shape=shape,
        cameras=tuple(camera for camera in shape.cameras if camera in seen),
        statistics=statistics,
        tokenizer=tokenizer,
        content_sha256=content.hexdigest(),
        **{name: torch.from_numpy(values) for name, values in parts.items()},
    )


def frames(images: dict[str, NDArray[np.uint8]], shape: InputShape) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Camera → (F, H, W, 3) as one uint8 (F, cameras, 3, S, S), and which cameras there are; black where not."""
    count = len(next(iter(images.values()))) if images else 0
    stacked = np.zeros((count, len(shape.cameras), 3, shape.image_size, shape.image_size), np.uint8)
    for number, camera in enumerate(shape.cameras):
        if camera in images:
            stacked[:, number] = resize(images[camera], shape.image_size).transpose(0, 3, 1, 2)
    return stacked, np.array([camera in images for camera in shape.cameras])


def states(raw: NDArray[np.float64], statistics: Statistics) -> NDArray[np.float32]:
    """LIBERO states (…, 8) as a model reads them, before padding."""
    return statistics.state.normalise(tool_frame(raw))


def pad(values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Zeros appended to the last dimension up to `width`."""
    missing = width - values.shape[-1]
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])


def _windows(episode: Episode, statistics: Statistics, shape: InputShape) -> NDArray[np.float32]:
    steps = episode.frame_steps[:, None] + np.arange(shape.chunk)
    return statistics.action.normalise(episode.actions[np.minimum(steps, len(episode.actions) - 1)])


@dataclass(frozen=True)
class Batches:
    """What one rank is fed. Nothing is remembered between calls, so a resumed run sees what an unbroken one saw.

    The samples of a step are the next `ranks · micro_batch · accumulation` of an endless row of epochs, each a
    permutation of the whole set; which samples a step has does not depend on how they are spread over ranks.

    Attributes:
        micro_batch: samples per micro-step on one rank.
    """

    dataset: Dataset
    seed: int
    rank: int
    ranks: int
    micro_batch: int
    accumulation: int

    def indices(self, step: int, micro_step: int) -> NDArray[np.int64]:
        """Numbers of this rank's samples (micro_batch,)."""
        step_samples = self.ranks * self.micro_batch * self.accumulation
        first = step * step_samples + (micro_step * self.ranks + self.rank) * self.micro_batch
        count = self.dataset.samples
        places = [divmod(place, count) for place in range(first, first + self.micro_batch)]
        return np.array([_epoch(self.seed, epoch, count)[place] for epoch, place in places])

    def at(self, step: int, micro_step: int) -> Batch:
        """The micro-batch of that step, augmented: a function of the arguments and the attributes alone."""
        chosen = torch.from_numpy(self.indices(step, micro_step))
        where = f"{self.seed} {step} {micro_step} {self.rank}"
        data = self.dataset
        observation = Observation(
            images=augment(data.images[chosen], _generator(f"augment {where}")),
            image_masks=data.image_masks[chosen],
            input_ids=data.input_ids[chosen],
            attention_mask=data.attention_mask[chosen],
            state=data.states[chosen],
        )
        return Batch(observation, data.actions[chosen], _generator(f"noise {where}"))

    def sha256(self, batches: int) -> str:
        """Over all that this rank's first micro-batches hold, the state of their generators included."""
        digest = hashlib.sha256()
        for number in range(batches):
            batch = self.at(*divmod(number, self.accumulation))
            seen = batch.observation
            every = (seen.images, seen.image_masks, seen.input_ids, seen.attention_mask, seen.state, batch.actions)
            for part in (*every, batch.generator.get_state()):
                digest.update(part.numpy().tobytes())
        return digest.hexdigest()


@lru_cache(maxsize=4)
def _epoch(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(samples)


def _generator(name: str) -> torch.Generator:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1
    return torch.Generator().manual_seed(seed)
