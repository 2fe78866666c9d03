"""Instructions as ids: by the checkpoint's own tokenizer where its files are given, else by a small one of words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.data.shape import InputShape
from harness.data.state_prompt import BINS
from harness.errors import BadInput

Encoded = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""Ids (slots,), and which of them are not padding (slots,)."""


class Tokenizer(Protocol):
    """Instructions to ids of a fixed length."""

    def encode(self, prompt: str, state: str = "") -> Encoded:
        """What does not fit is cut off. `state` is `spoken_state`'s, where the prompt is to tell it."""
        ...


PADDING, UNKNOWN = 0, 1
FIRST_WORD = 2


def words_of(prompt: str) -> list[str]:
    """Lower-case words and numbers without "the", which tells no two LIBERO instructions apart but fills slots."""
    return [word for word in re.findall(r"[a-z0-9]+", prompt.lower()) if word != "the"]


@dataclass(frozen=True)
class WordTokenizer:
    """Words to ids, with no file at all: the instructions of LIBERO's four task suites need a few dozen words.

    The n-th word of `words` is id n + 2; 0 is padding and 1 any other word.

    Attributes:
        words: the vocabulary, sorted, so that it depends on the set of prompts alone.
        slots: ids per prompt.
    """

    words: tuple[str, ...]
    slots: int

    @classmethod
    def of(cls, prompts: Iterable[str], shape: InputShape, state: str = "") -> WordTokenizer:
        """The vocabulary of these prompts; with a state such as `state` in them, of all its bins too.

        Raises:
            BadInput: a prompt has more words than slots, or all have more words than the embedding has rows.
        """
        prompts = sorted(set(prompts))
        slots = shape.text_slots - len(words_of(state))
        for prompt in prompts:
            if len(words_of(prompt)) > slots:
                raise BadInput("demonstrations", "instruction", prompt, f'at most {slots} words besides "the"')
        bins = {str(number) for number in range(BINS)} if state else set()
        words = sorted({word for prompt in prompts for word in words_of(prompt)} | bins)
        if len(words) > shape.vocabulary - FIRST_WORD:
            limit = shape.vocabulary - FIRST_WORD
            raise BadInput("demonstrations", "instructions", len(words), f"at most {limit} different words")
        return cls(tuple(words), shape.text_slots)

    def encode(self, prompt: str, state: str = "") -> Encoded:
        known = {word: number for number, word in enumerate(self.words, FIRST_WORD)}
        return _padded([known.get(word, UNKNOWN) for word in words_of(f"{prompt} {state}")], self.slots, PADDING)


@dataclass(frozen=True)
class FileTokenizer:
    """A tokenizer of transformers, from the files in a local folder; nothing is ever downloaded or executed.

    Attributes:
        folder: `tokenizer.json` or the files of the checkpoint's own kind, with `tokenizer_config.json`.
        slots: ids per prompt.
        template: the model's text around the instruction, which stands in it as `{prompt}` (and the state as
            `{state}`).
    """

    folder: Path
    slots: int
    template: str

    @classmethod
    def of(cls, folder: Path, prompts: Iterable[str], shape: InputShape, state: str = "") -> FileTokenizer:
        """Reads the files, and tries them on these prompts, with `state` in them where the template has a place.

        Raises:
            BadInput: the folder holds no tokenizer, a prompt needs more slots than there are, or an id is beyond the
                model's text embedding.
        """
        tokenizer = cls(folder, shape.text_slots, shape.prompt_template)
        for prompt in sorted(set(prompts)):
            ids = tokenizer._ids(prompt, state)
            if len(ids) > shape.text_slots:
                raise BadInput(
                    folder, "instruction", prompt, f"at most {shape.text_slots} tokens, these are {len(ids)}"
                )
            if max(ids, default=0) >= shape.vocabulary:
                raise BadInput(folder, "token", max(ids), f"ids below {shape.vocabulary}, the model's text embedding")
        return tokenizer

    def encode(self, prompt: str, state: str = "") -> Encoded:
        return _padded(self._ids(prompt, state), self.slots, self._loaded.pad_token_id or PADDING)

    def save(self, folder: Path) -> None:
        """Writes the tokenizer's files, in transformers' own layout."""
        self._loaded.save_pretrained(folder)

    def _ids(self, prompt: str, state: str) -> list[int]:
        # As openpi and Dexbotic clean it (`Pi0Tokenization`): underscores and line ends become spaces.
        text = prompt.strip().replace("_", " ").replace("\n", " ")
        ids: list[int] = self._loaded(self.template.format(prompt=text, state=state))["input_ids"]
        return ids

    @cached_property
    def _loaded(self) -> Any:
        from transformers import AutoTokenizer

        if not self.folder.is_dir():
            raise BadInput("data", "tokenizer", str(self.folder), "a folder of tokenizer files")
        try:
            return AutoTokenizer.from_pretrained(str(self.folder), local_files_only=True)
        except (OSError, ValueError, KeyError, ImportError) as error:
            found = [path.name for path in self.folder.iterdir()]
            first = str(error).strip().splitlines()[0]
            raise BadInput("data", "tokenizer", str(self.folder), f"tokenizer files ({first})", found) from None


def _padded(ids: list[int], slots: int, padding: int) -> Encoded:
    ids = ids[:slots]
    filled = np.arange(slots) < len(ids)
    return np.array(ids + [padding] * (slots - len(ids)), dtype=np.int64), filled
