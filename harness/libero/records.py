"""Episodes as records, and the evaluation protocol they were run under. No simulator here."""

from __future__ import annotations

from typing import Literal

from harness.machine import Fingerprint
from harness.plan import EpisodeKey
from harness.records import Record, Value


class Protocol(Value):
    """How an episode is run; part of the pairing key. Presets are in `harness.libero.protocol`."""

    name: str
    camera_height: int
    camera_width: int
    cameras: tuple[str, ...]
    rotate_180: bool
    settle_steps: int
    step_budgets: dict[str, int]
    """Task suite → control steps after settling."""
    replan_steps: int
    """Actions executed per predicted chunk."""
    prompt_template: str
    """Python format string with `{instruction}`."""
    gripper: Literal["continuous", "sign"]
    """`sign`: below zero opens (−1), else closes (+1)."""
    state_layout: Literal["eef_pos+axis_angle+gripper"]
    """8 float64: position (3), robosuite's axis-angle without antipodal flip (3), gripper joints (2)."""


class EpisodeRecord(Record):
    """One line of `episodes.jsonl`. An error has a reason and is never a failure."""

    arm: str
    key: EpisodeKey
    protocol: str
    """`Protocol.digest()`."""
    outcome: Literal["success", "failure", "error", "uncovered"]
    """`uncovered`: the scripted expert has no skill for the task's goal; like an error, not in any rate."""
    reason: str | None
    scene_sha256: str | None
    steps: int
    """Control steps after settling."""
    looks: int
    wall_seconds: float
    tries: int


class ArmRecord(Record):
    """`protocol.json` beside an arm's episodes: what made them."""

    arm: str
    policy: str
    """Where the policy came from: an export folder relative to the result, or a control's name."""
    protocol: Protocol
    fingerprint: Fingerprint
    gl_vendor: str | None
    gl_renderer: str | None
