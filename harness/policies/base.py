"""What an evaluator asks of a policy, whatever is behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.plan import EpisodeKey


@dataclass(frozen=True)
class Look:
    """What the policy is shown at one moment.

    Attributes:
        key: the episode it belongs to.
        replan: 0 at the first look of the episode, then 1, 2, …
        images: camera name → uint8 (H, W, 3), upright.
        state: float64 (8,), see `Protocol.state_layout`.
        prompt: the instruction, through the protocol's template.
        seed: seeds the policy's own noise; a function of (episode, replan) alone.
    """

    key: EpisodeKey
    replan: int
    images: dict[str, NDArray[np.uint8]]
    state: NDArray[np.float64]
    prompt: str
    seed: int


Chunk = NDArray[np.floating[Any]]
"""(T, 7) actions in controller units: Δxyz, Δaxis-angle in [-1, 1], gripper −1 open, +1 close. They are executed in
float64, so what a server answers in float64 is not rounded."""


class Policy(Protocol):
    """Answers looks with chunks. Its answer depends on the look alone, or (a server that keeps a session per episode)
    on the looks of that episode in their order."""

    def act(self, looks: list[Look]) -> list[Chunk]:
        """One chunk per look, in order. Raises PolicyFault when it cannot answer."""
        ...

    def ended(self, key: EpisodeKey, success: bool) -> None:
        """An episode that was looked at is over; what is kept for it may go."""
        ...

    def close(self) -> None: ...


class PolicyFault(Exception):
    """The policy could not answer: an error of the episode, never a failed attempt at the task."""
