"""Asking a policy once before it is evaluated: an answer that is wrong in kind must not become a success rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.errors import HarnessError
from harness.libero.episode import chunk_fault
from harness.libero.perception import STATE_SIZES
from harness.libero.records import Protocol
from harness.plan import EpisodeKey
from harness.policies.base import Look, Policy, PolicyFault

LARGEST_COMMAND = 10.0
"""Commands are in [-1, 1], beyond which the controller clips. A policy may overshoot; one that answers in other units
(millimetres, raw tokens) is an order of magnitude off."""

_HOME_POSITION_M = (-0.05, 0.0, 0.95)
"""Roughly where LIBERO's gripper starts."""


@dataclass(frozen=True)
class Probe:
    """What the answer to a blank look was like.

    Attributes:
        actions: in one chunk.
        repeatable: whether the same look, with the same seed, was answered alike.
    """

    actions: int
    repeatable: bool

    def spoken(self) -> str:
        same = "the same look is answered alike" if self.repeatable else "the same look is answered differently"
        return f"{self.actions} actions a chunk; {same}"


def probe(policy: Policy, protocol: Protocol, task_suite: str) -> Probe:
    """Asks a policy twice with one look: grey images, the arm about at home.

    Args:
        policy: what is to be evaluated.
        protocol: decides image size, cameras, state, and how many actions are needed.
        task_suite: one that it will be evaluated in.

    Raises:
        HarnessError: no answer, or one of the wrong shape, range or count; nothing has been run.
    """
    look = _blank_look(protocol, task_suite)
    try:
        first = policy.act([look])[0]
        policy.ended(look.key, success=False)
        again = policy.act([look])[0]
        policy.ended(look.key, success=False)
    except PolicyFault as fault:
        raise HarnessError(f"the policy does not answer, nothing was run: {fault}") from None
    fault_found = chunk_fault(first) or chunk_fault(again)
    if fault_found:
        raise HarnessError(f"nothing was run: {fault_found}")
    largest = float(np.abs(first).max())
    if largest > LARGEST_COMMAND:
        raise HarnessError(
            f"nothing was run: the policy commands {largest:.3g}, expected controller units in [-1, 1]; "
            "its normalisation statistics are probably not those of its training"
        )
    needed = protocol.replan(task_suite)
    if len(first) < needed:
        raise HarnessError(
            f"nothing was run: the policy answers with {len(first)} actions, and protocol {protocol.name} executes "
            f"{needed} of each chunk in {task_suite}: give --replan-steps {len(first)}"
        )
    return Probe(len(first), bool(np.array_equal(first, again)))


def _blank_look(protocol: Protocol, task_suite: str) -> Look:
    height, width = protocol.sent_size
    grey = np.full((height, width, 3), 127, dtype=np.uint8)
    state = np.zeros(STATE_SIZES[protocol.state_layout])
    if protocol.state_layout == "eef_pos+axis_angle+gripper":
        state[:3] = _HOME_POSITION_M
    return Look(
        key=EpisodeKey(task_suite=task_suite, task=0, initial_state=0, seed=0),
        replan=0,
        images={camera: grey for camera in protocol.cameras},
        state=state,
        prompt="do nothing",
        seed=0,
    )
