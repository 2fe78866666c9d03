"""The episode loop. It knows neither simulator nor model: looks go out, chunks come in, an ending comes back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.libero.perception import Percept, images_sha256, resized, state_of
from harness.libero.records import Protocol as EvaluationProtocol
from harness.plan import EpisodeKey
from harness.policies.base import Chunk, Look, PolicyFault

ACTION_SIZE = 7


class Steps(Protocol):
    """What the loop needs of a scene."""

    def step(self, action: NDArray[np.float64], *, look: bool) -> Percept: ...

    def success(self) -> bool: ...


@dataclass(frozen=True)
class Ending:
    """How an episode ended.

    Attributes:
        outcome: success at any step, failure (the budget is spent), or an error of the policy.
        reason: of an error; of a failure what the scripted expert was at, None for other policies.
        looks: chunks that were asked for.
        actions: float64 (steps, 7), as executed, those of settling left out.
        first_images_sha256, last_images_sha256: of the first and the last look, see `images_sha256`.
    """

    outcome: Literal["success", "failure", "error"]
    reason: str | None
    looks: int
    actions: NDArray[np.float64]
    first_images_sha256: str | None = None
    last_images_sha256: str | None = None

    @property
    def steps(self) -> int:
        return len(self.actions)


def always(_step: int) -> bool:
    return True


def never(_step: int) -> bool:
    return False


def play(
    scene: Steps,
    percept: Percept,
    key: EpisodeKey,
    protocol: EvaluationProtocol,
    prompt: str,
    with_images: Callable[[int], bool] = always,
) -> Generator[Look, Chunk, Ending]:
    """One episode, from a settled scene to its ending.

    Yields a look whenever a chunk is due and expects the chunk to be sent, or a PolicyFault to be thrown; returns the
    ending.

    Args:
        scene: just reset and settled.
        percept: what was perceived after the last settling step.
        prompt: the instruction, through the protocol's template.
        with_images: whether the look at a step carries images; rendering is what an episode mostly costs.
    """
    budget, replan_steps = protocol.budget(key.task_suite), protocol.replan(key.task_suite)
    executed: list[NDArray[np.float64]] = []
    hashes: list[str | None] = []

    def ending(outcome: Literal["success", "failure", "error"], reason: str | None = None) -> Ending:
        actions = np.array(executed, dtype=np.float64).reshape(-1, ACTION_SIZE)
        return Ending(outcome, reason, len(hashes), actions, hashes[0], hashes[-1])

    for index in range(protocol.zero_steps):
        percept = scene.step(np.zeros(ACTION_SIZE), look=index == protocol.zero_steps - 1 and with_images(0))
    while True:
        look = _look(percept, key, len(hashes), protocol, prompt)
        hashes.append(images_sha256(look.images))
        try:
            chunk = yield look
        except PolicyFault as fault_of_policy:
            return ending("error", str(fault_of_policy))
        fault = chunk_fault(chunk)
        if fault is not None:
            return ending("error", fault)
        due = np.asarray(chunk, dtype=np.float64)[: min(replan_steps, budget - len(executed))]
        for index, wanted in enumerate(due):
            action = gripper_rule(wanted, protocol)
            last = index == len(due) - 1
            percept = scene.step(action, look=last and with_images(len(executed) + 1))
            executed.append(action)
            if scene.success():
                return ending("success")
        if len(executed) == budget:
            return ending("failure")


def _look(percept: Percept, key: EpisodeKey, replan: int, protocol: EvaluationProtocol, prompt: str) -> Look:
    images = percept.images
    if protocol.resize is not None:
        images = {camera: resized(image, protocol.resize) for camera, image in images.items()}
    state = state_of(percept, protocol.state_layout)
    return Look(key, replan, images, state, prompt, look_seed(key, replan))


def look_seed(key: EpisodeKey, replan: int) -> int:
    """Seeds the policy's noise at one look: 63 bits, a function of (episode, replan index) alone."""
    text = f"{key.task_suite}/{key.task}/{key.initial_state}/{key.seed}/{replan}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def chunk_fault(chunk: object) -> str | None:
    """What makes a chunk unfit to be executed; None for a good one."""
    array = np.asarray(chunk)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] != ACTION_SIZE:
        return f"the policy's chunk has shape {array.shape}, expected (T, {ACTION_SIZE}) with T ≥ 1"
    if not np.issubdtype(array.dtype, np.floating):
        return f"the policy's chunk has dtype {array.dtype}, expected floating point"
    if not np.isfinite(array).all():
        return "the policy's chunk holds NaN or infinity"
    return None


def gripper_rule(action: NDArray[np.float64], protocol: EvaluationProtocol) -> NDArray[np.float64]:
    """The action with its gripper command as the protocol wants it."""
    if protocol.gripper == "continuous":
        return action
    opens = action[-1] > 0.5 if protocol.gripper == "unit-inverted" else action[-1] < 0
    return np.append(action[:-1], -1.0 if opens else 1.0)
