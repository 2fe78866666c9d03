"""A word tokenizer: the instructions of four task suites need a few dozen words and no download."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.data.shape import InputShape
from harness.errors import BadInput

PADDING, UNKNOWN = 0, 1
FIRST_WORD = 2


def words_of(prompt: str) -> list[str]:
    """Lower-case words and numbers without "the", which tells no two LIBERO instructions apart but fills slots."""
    return [word for word in re.findall(r"[a-z0-9]+", prompt.lower()) if word != "the"]


@dataclass(frozen=True)
class WordTokenizer:
    """Words to ids: the n-th word of `words` is id n + 2; 0 is padding and 1 any other word.

    Attributes:
        words: the vocabulary, sorted, so that it depends on the set of prompts alone.
        slots: ids per prompt.
    """

    words: tuple[str, ...]
    slots: int

    @classmethod
    def of(cls, prompts: Iterable[str], shape: InputShape) -> WordTokenizer:
        """The vocabulary of these prompts.

        Raises:
            BadInput: a prompt has more words than slots, or all have more words than the embedding has rows.
        """
        prompts = sorted(set(prompts))
        for prompt in prompts:
            if len(words_of(prompt)) > shape.text_slots:
                raise BadInput(
                    "demonstrations", "instruction", prompt, f'at most {shape.text_slots} words besides "the"'
                )
        words = sorted({word for prompt in prompts for word in words_of(prompt)})
        if len(words) > shape.vocabulary - FIRST_WORD:
            limit = shape.vocabulary - FIRST_WORD
            raise BadInput("demonstrations", "instructions", len(words), f"at most {limit} different words")
        return cls(tuple(words), shape.text_slots)

    def encode(self, prompt: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Ids (slots,) and which of them are words (slots,). What does not fit is cut off."""
        known = {word: number for number, word in enumerate(self.words, FIRST_WORD)}
        ids = [known.get(word, UNKNOWN) for word in words_of(prompt)][: self.slots]
        filled = np.arange(self.slots) < len(ids)
        return np.array(ids + [PADDING] * (self.slots - len(ids)), dtype=np.int64), filled
