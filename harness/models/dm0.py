"""dm0 (Dexbotic's `dm0_arch.py`): Qwen3 as VLM and as expert, images through a Perception Encoder.

It differs from pi0 in its prefix, which is causal over image and text tokens alike, and has no state token: the
published model does not read the robot's state.
"""

from __future__ import annotations

from harness.models.families import QWEN3
from harness.models.time_mixing import TimeMixingVLA


class Dm0(TimeMixingVLA):
    """The prefix is causal, the actions are one block that sees all of it."""

    family = QWEN3
    state_tokens = 0
    causal_prefix = True
    tokens_definition = (
        "positions through the joint transformer per sample: image tokens of every camera slot, missing ones too, "
        "plus text slots, padding included, plus one token per action of the chunk"
    )
