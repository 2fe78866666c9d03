"""A trained checkpoint as a policy, in the evaluator's own process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from harness.data.batch import Observation
from harness.data.dataset import pad
from harness.data.recordings import View, stacked
from harness.data.state_prompt import spoken_state
from harness.data.transforms import pixels
from harness.errors import DamagedRecord
from harness.models import build
from harness.models.base import VLA
from harness.policies.base import Chunk, Look, PolicyFault
from harness.policies.card import CARD_FILE, WEIGHTS_FILE, PolicyCard, read_card, read_tokenizer, write_card

__all__ = ["CARD_FILE", "WEIGHTS_FILE", "CheckpointPolicy", "PolicyCard", "load_weights", "read_card", "write_card"]


class CheckpointPolicy:
    """Runs `model.safetensors` as `policy.json` says, in float32 on the CPU.

    Looks are answered one by one, each from its own seed: matrix products of different batch sizes round
    differently, and an episode must not depend on which others ran beside it.
    """

    def __init__(self, folder: Path, threads: int = 1) -> None:
        """Loads the checkpoint, and sets torch's thread count for the whole process.

        Raises:
            DamagedRecord: the card or the weights are missing, unreadable, or do not belong together.
        """
        torch.set_num_threads(threads)
        self.card = read_card(folder)
        self._tokenizer = read_tokenizer(folder, self.card)
        shape = self.card.shape
        self._view = View(cameras=shape.cameras, image_size=shape.image_size)
        self._filled = np.array([camera in self.card.cameras for camera in shape.cameras])
        self._model = build(self.card.model, self.card.size).eval()
        load_weights(self._model, folder / WEIGHTS_FILE)

    def act(self, looks: list[Look]) -> list[Chunk]:
        """One chunk (chunk, 7) per look.

        Raises:
            PolicyFault: a camera or a state value is missing, or the model answers with something not finite.
        """
        return [self._answer(look) for look in looks]

    def close(self) -> None:
        """Nothing to give back."""

    def _answer(self, look: Look) -> Chunk:
        observation = self._observe(look)
        chunk = self._model.sample(observation, torch.Generator().manual_seed(look.seed))
        actions = self.card.statistics.controller(chunk[:, :, :7].numpy(), look.state[None])[0]
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


def load_weights(model: VLA, file: Path) -> None:
    """Copies a safetensors file into the model; every tensor must be there, and none besides.

    Raises:
        DamagedRecord: the file cannot be read, or its tensors are not the model's; all differences are listed.
    """
    try:
        found = load_file(file)
    except (OSError, SafetensorError) as error:
        raise DamagedRecord(f"{file}: not a readable safetensors file ({error})") from None
    wanted = model.state_dict()
    faults = [f"missing {name}" for name in sorted(wanted.keys() - found.keys())]
    faults += [f"unexpected {name}" for name in sorted(found.keys() - wanted.keys())]
    faults += [
        f"{name} is {tuple(found[name].shape)}, not {tuple(wanted[name].shape)}"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name].shape != found[name].shape
    ]
    if faults:
        raise DamagedRecord(f"{file}: not this model's weights: {'; '.join(faults)}")
    model.load_state_dict(found)
