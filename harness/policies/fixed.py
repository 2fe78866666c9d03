"""A policy that answers every look alike: a control, and a stand-in for a model in tests."""

from __future__ import annotations

import numpy as np

from harness.plan import EpisodeKey
from harness.policies.base import Chunk, Look


class FixedPolicy:
    """Sends the same chunk at every look.

    Args:
        chunk: float32 (T, 7).
    """

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = np.array(chunk, dtype=np.float32)

    def act(self, looks: list[Look]) -> list[Chunk]:
        return [self._chunk.copy() for _ in looks]

    def ended(self, key: EpisodeKey, success: bool) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to release."""


def still(replan_steps: int) -> FixedPolicy:
    """The arm `still`: no motion, gripper open. Whatever succeeds under it, a policy need not be credited for."""
    return FixedPolicy(np.tile(np.array([0, 0, 0, 0, 0, 0, -1], dtype=np.float32), (replan_steps, 1)))
