"""pi0 (Black et al., arXiv 2410.24164): a Gemma VLM and an action expert, coupled layer by layer.

The published model has a SigLIP tower; the small sizes put a few convolutions in its place and change nothing else.
"""

from __future__ import annotations

from harness.models.families import GEMMA
from harness.models.time_mixing import TimeMixingVLA


class Pi0(TimeMixingVLA):
    """Prefix, state token and actions are three blocks; within a block all see each other."""

    family = GEMMA
    state_tokens = 1
    tokens_definition = (
        "positions through the joint transformer per sample: image tokens of every camera slot, missing ones too, "
        "plus text slots, padding included, plus one state token, plus one token per action of the chunk"
    )
