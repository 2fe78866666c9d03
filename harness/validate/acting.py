"""What an exported policy does when it is shown noise: the same for all policies of one shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.plan import EpisodeKey
from harness.policies.base import Look
from harness.policies.checkpoint import CheckpointPolicy

_SIDE = 64
"""Pixels of the pictures; the policy resizes them."""


def actions_of(export: Path) -> npt.NDArray[np.float64]:
    """One chunk of actions (chunk, 7), in the controller's units.

    Raises whatever loading and acting raise: DamagedRecord, BadInput, PolicyFault, and what the model itself does.
    """
    policy = CheckpointPolicy(export)
    random = np.random.default_rng(0)
    look = Look(
        key=EpisodeKey(task_suite="libero_object", task=0, initial_state=0, seed=0),
        replan=0,
        images={camera: random.integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8) for camera in policy.card.cameras},
        state=random.normal(size=len(policy.card.statistics.state.mean)),
        prompt="pick up the soup",
        seed=0,
    )
    return np.asarray(policy.act([look])[0], dtype=np.float64)
