"""A trained checkpoint as a policy, in the evaluator's own process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from harness.data.batch import Observation
from harness.data.dataset import pad
from harness.data.recordings import View, stacked
from harness.data.state_prompt import spoken_state
from harness.data.transforms import pixels
from harness.models import build
from harness.models.formats.transfer import load_checkpoint
from harness.plan import EpisodeKey
from harness.policies.base import Chunk, Look, PolicyFault
from harness.policies.card import CARD_FILE, WEIGHTS_FILE, PolicyCard, read_card, read_tokenizer, write_card

__all__ = ["CARD_FILE", "WEIGHTS_FILE", "CheckpointPolicy", "PolicyCard", "read_card", "write_card"]


class CheckpointPolicy:
    """Runs a checkpoint as its `policy.json` says, in float32 on the CPU.

    The weights may be in any format of the model (`harness.models.formats`), in one file or in shards.

    Looks are answered one by one, each from its own seed: matrix products of different batch sizes round
    differently, and an episode must not depend on which others ran beside it.
    """

    def __init__(self, folder: Path, threads: int = 1) -> None:
        """Loads the checkpoint, and sets torch's thread count for the whole process.

        Raises:
            DamagedRecord: the card is missing, or card or weights are unreadable or do not belong together.
            BadInput: there are no weights beside the card.
        """
        torch.set_num_threads(threads)
        self.card = read_card(folder)
        self._tokenizer = read_tokenizer(folder, self.card)
        shape = self.card.shape
        self._view = View(cameras=shape.cameras, image_size=shape.image_size)
        self._filled = np.array([camera in self.card.cameras for camera in shape.cameras])
        self._model = build(self.card.model, self.card.size).eval()
        load_checkpoint(self._model, folder)

    def act(self, looks: list[Look]) -> list[Chunk]:
        """One chunk (chunk, 7) per look.

        Raises:
            PolicyFault: a camera or a state value is missing, or the model answers with something not finite.
        """
        return [self._answer(look) for look in looks]

    def ended(self, key: EpisodeKey, success: bool) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to give back."""

    def _answer(self, look: Look) -> Chunk:
        observation = self._observe(look)
        chunk = self._model.sample(observation, torch.Generator().manual_seed(look.seed))
        actions: Chunk = self.card.statistics.controller(chunk[:, :, :7].numpy(), look.state[None])[0]
        if not np.isfinite(actions).all():
            raise PolicyFault("the model's actions are not finite")
        return actions

    def _observe(self, look: Look) -> Observation:
        shape = self.card.shape
        missing = [camera for camera in self.card.cameras if camera not in look.images]
        if missing:
            raise PolicyFault(f"trained with cameras it is not shown: {', '.join(missing)}")
        width = len(self.card.statistics.state.mean)
        if look.state.shape != (width,) or not np.isfinite(look.state).all():
            raise PolicyFault(f"the state must be {width} finite numbers, as in training; found {look.state}")
        images = stacked({camera: look.images[camera][None] for camera in self.card.cameras}, self._view)
        state = self.card.statistics.states(look.state[None])
        spoken = spoken_state(state[0]) if shape.state_in_prompt else ""
        ids, filled = self._tokenizer.encode(look.prompt, spoken)
        return Observation(
            images=pixels(torch.from_numpy(images)),
            image_masks=torch.from_numpy(self._filled)[None],
            input_ids=torch.from_numpy(ids)[None],
            attention_mask=torch.from_numpy(filled)[None],
            state=torch.from_numpy(pad(state, shape.state_dim)),
        )
