"""The robot's state as words of the prompt, as pi05 has it by default (openpi's `PaligemmaTokenizer.tokenize`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.data.shape import InputShape

BINS = 256
"""Equal bins of a normalised value from −1 to 1; what lies outside falls into the first or last."""
TEMPLATE = "Task: {prompt}, State: {state};\nAction: "


def with_state_in_prompt(shape: InputShape) -> InputShape:
    """The same inputs with pi05's template around instruction and state."""
    return shape.model_copy(update={"prompt_template": TEMPLATE})


def spoken_state(state: NDArray[np.floating]) -> str:
    """The bins of normalised values (D,): "127 0 255"."""
    bins = np.clip(np.floor((state + 1) * (BINS / 2)), 0, BINS - 1).astype(int)
    return " ".join(map(str, bins))
