"""A policy that is kept from seeing something: what it does then, it can do without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness.libero.records import Protocol
from harness.libero.tasks import task
from harness.plan import EpisodeKey
from harness.policies.base import Chunk, Look, Policy
from harness.task_suites import task_count

GREY = 128
"""Of every pixel that stands for one that is not shown."""


class Blinded:
    """Shows a policy grey images, or the instruction of the next task of the suite that has another one.

    It owns the policy.
    """

    def __init__(self, policy: Policy, blinding: str, protocol: Protocol) -> None:
        """
        Args:
            blinding: one of `harness.suite.BLINDED`.
            protocol: whose template the instruction goes through.
        """
        self._policy, self._protocol = policy, protocol
        self._shown = {":no-images": _without_images, ":wrong-instruction": self._misled}[blinding]

    def act(self, looks: list[Look]) -> list[Chunk]:
        """As the policy itself."""
        return self._policy.act([self._shown(look) for look in looks])

    def ended(self, key: EpisodeKey, success: bool) -> None:
        self._policy.ended(key, success)

    def close(self) -> None:
        self._policy.close()

    def _misled(self, look: Look) -> Look:
        suite, number = look.key.task_suite, look.key.task
        count = task_count(suite)
        others = (task(suite, (number + step) % count).prompt(self._protocol) for step in range(1, count))
        return replace(look, prompt=next(other for other in others if other != look.prompt))


def _without_images(look: Look) -> Look:
    return replace(look, images={camera: np.full_like(image, GREY) for camera, image in look.images.items()})
