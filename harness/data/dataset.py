"""Episodes as samples, and the batches of a rank as a pure function of the step."""

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
from harness.data.recordings import OnProgress, Recordings, Steps, View, open_recordings
from harness.data.shape import InputShape
from harness.data.sources import open_source
from harness.data.state_prompt import spoken_state
from harness.data.statistics import Statistics
from harness.data.summary import statistics_of, windows
from harness.data.tokens import Encoded, FileTokenizer, Tokenizer, WordTokenizer
from harness.data.transforms import augment
from harness.suite import Data


@dataclass(frozen=True)
class Text:
    """Each instruction once, in words, as int64 ids (P, slots) with bool mask (P, slots); which one a sample has (N,).

    Where the prompt tells the state, no two samples need share a text: then `spoken` holds each sample's state.
    """

    prompts: tuple[str, ...]
    input_ids: Tensor
    attention_mask: Tensor
    of_sample: Tensor
    spoken: tuple[str, ...] | None


@dataclass(frozen=True)
class Dataset:
    """All samples. A sample is a control step that has a camera frame.

    Attributes:
        images: uint8 (N, cameras, 3, S, S); pages of a file, read when they are looked at.
        image_masks: bool (N, cameras).
        states: float32 (N, state dimensions), normalised and padded.
        steps: states and actions as the episodes have them.
        cameras: the cameras some episode has.
        damaged: episodes that were left out, and why.
    """

    shape: InputShape
    images: Tensor
    image_masks: Tensor
    text: Text
    states: Tensor
    steps: Steps
    cameras: tuple[str, ...]
    statistics: Statistics
    tokenizer: Tokenizer
    damaged: tuple[str, ...]
    content_sha256: str

    @property
    def samples(self) -> int:
        return len(self.states)

    def actions(self, samples: Tensor) -> Tensor:
        """Normalised, padded chunks (n, chunk, action dimensions); past the end the last action is repeated."""
        rows = samples.numpy()
        chunks = self.statistics.actions(windows(self.steps, rows, self.shape.chunk), self.steps.states[rows])
        return torch.from_numpy(pad(chunks, self.shape.action_dim))

    def observation(self, samples: Tensor, images: Tensor) -> Observation:
        """What those samples show, with `images` as the model reads them: float32 (n, cameras, 3, S, S)."""
        ids, filled = self._text(samples)
        return Observation(
            images=images,
            image_masks=self.image_masks[samples],
            input_ids=ids,
            attention_mask=filled,
            state=self.states[samples],
        )

    def _text(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and mask (n, slots)."""
        text, spoken = self.text.of_sample[samples], self.text.spoken
        if spoken is None:
            return self.text.input_ids[text], self.text.attention_mask[text]
        both = zip(text.tolist(), samples.tolist(), strict=True)
        return _stacked([self.tokenizer.encode(self.text.prompts[prompt], spoken[sample]) for prompt, sample in both])


def _silent(_text: str) -> None:
    """Nobody is watching."""


def open_dataset(
    data: Data, folder: Path | None, shape: InputShape, cache: Path | None = None, on_progress: OnProgress = _silent
) -> Dataset:
    """Reads all episodes of `data` from `folder` (not needed when synthetic) into the shape a model wants.

    Args:
        cache: where decoded frames and statistics are kept between runs; see `harness.data.recordings`.
        on_progress: told how far it is while episodes are read, which may take minutes.

    Raises:
        BadInput: the folder, a file in it or the tokenizer is not what `data` asks for.
        DamagedRecord: an episode cannot be read, and `data` does not say `skip_damaged`.
    """
    source = open_source(data, folder, shape)
    view = View(cameras=shape.cameras, image_size=shape.image_size)
    # What is drawn at random costs nothing to draw again.
    kept = cache if source.files else None
    return dataset_of(
        open_recordings(source, view, kept, skip_damaged=data.skip_damaged, on_progress=on_progress), data, shape
    )


def dataset_of(recordings: Recordings, data: Data, shape: InputShape) -> Dataset:
    """The samples of these recordings. Raises BadInput for instructions the model has no room for."""
    record, steps = recordings.record, recordings.steps
    statistics = statistics_of(recordings, data, shape.chunk)
    states = statistics.states(steps.states)
    tokenizer, text = _text(recordings, data, shape, states)
    seen = [bool(filled.any()) for filled in steps.cameras.T]
    return Dataset(
        shape=shape,
        images=torch.from_numpy(recordings.images),
        image_masks=torch.from_numpy(steps.cameras),
        text=text,
        states=torch.from_numpy(pad(states, shape.state_dim)),
        steps=steps,
        cameras=tuple(camera for camera, there in zip(shape.cameras, seen, strict=True) if there),
        statistics=statistics,
        tokenizer=tokenizer,
        damaged=record.damaged,
        content_sha256=record.content_sha256,
    )


def _text(recordings: Recordings, data: Data, shape: InputShape, states: NDArray[np.float32]) -> tuple[Tokenizer, Text]:
    prompts, spoken, longest = tuple(recordings.record.prompts), None, ""
    if shape.state_in_prompt:
        spoken = tuple(spoken_state(state) for state in states)
        longest = spoken_state(np.ones(states.shape[1], np.float32))
    tokenizer: Tokenizer
    if data.tokenizer is None:
        tokenizer = WordTokenizer.of(prompts, shape, longest)
    else:
        tokenizer = FileTokenizer.of(Path(data.tokenizer), prompts, shape, longest)
    ids, masks = _stacked([tokenizer.encode(prompt) for prompt in prompts])
    return tokenizer, Text(prompts, ids, masks, torch.from_numpy(recordings.steps.prompts), spoken)


def _stacked(encoded: list[Encoded]) -> tuple[Tensor, Tensor]:
    ids, filled = np.stack([ids for ids, _ in encoded]), np.stack([filled for _, filled in encoded])
    return torch.from_numpy(ids), torch.from_numpy(filled)


def pad(values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Zeros appended to the last dimension up to `width`."""
    missing = width - values.shape[-1]
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])


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
        images = augment(self.dataset.images[chosen], _generator(f"augment {where}"))
        observation = self.dataset.observation(chosen, images)
        return Batch(observation, self.dataset.actions(chosen), _generator(f"noise {where}"))

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
