"""Episodes as records, and the evaluation protocol they were run under. No simulator here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.machine import Fingerprint
from harness.plan import EpisodeKey
from harness.records import ADDED, Record, Value
from harness.task_suites import base_suite

StateLayout = Literal["eef_pos+axis_angle+gripper", "joints+gripper"]
GripperRule = Literal["continuous", "sign", "unit-inverted"]


class Resizing(Value):
    """What happens to a rendered image on its way to the policy."""

    size: int
    """Height and width afterwards."""
    kernel: Literal["bilinear", "lanczos"]
    jpeg_first: bool = False
    """Through JPEG and back before, as the training data went."""


class Protocol(Value):
    """How an episode is run; part of the pairing key. Presets are in `harness.libero.protocol`."""

    name: str
    camera_height: int
    camera_width: int
    cameras: tuple[str, ...]
    rotate_180: bool
    resize: Resizing | None = None
    """None: the policy is shown images as they are rendered."""
    settle_steps: int
    """Steps with the neutral action (no motion, gripper open) before the first look."""
    zero_steps: int = 0
    """Then so many of zeros, which leave the gripper as it is: the original LIBERO's settling."""
    object_jitter_m: Annotated[float, ADDED] = Field(default=0.0, ge=0, le=0.1)
    """Free-standing objects are moved from the initial state by up to this much in x and y, metres: a function of the
    episode's key."""
    step_budgets: dict[str, int]
    """Task suite → control steps after settling. A variant has those of the task suite it is made from."""
    replan_steps: int
    """Actions executed per predicted chunk."""
    replan_steps_in: dict[str, int] = {}
    """Task suite → another number, where the protocol's authors use one."""
    prompt_template: str
    """Python format string with `{instruction}` or `{task_language}`."""
    gripper: GripperRule
    """`sign`: below zero opens (−1), else closes (+1). `unit-inverted`: commands lie in [0, 1]; above a half opens."""
    state_layout: StateLayout
    """float64. 8: position (3), robosuite's axis-angle without antipodal flip (3), gripper joints (2). Or 9: arm
    joints (7), gripper joints (2)."""

    def budget(self, task_suite: str) -> int:
        """Control steps of an episode after settling."""
        return self.step_budgets[base_suite(task_suite)]

    def replan(self, task_suite: str) -> int:
        """Actions executed of each chunk."""
        return self.replan_steps_in.get(base_suite(task_suite), self.replan_steps)

    @property
    def sent_size(self) -> tuple[int, int]:
        """Height and width of the images that the policy is shown."""
        return (self.resize.size, self.resize.size) if self.resize else (self.camera_height, self.camera_width)


class EpisodeRecord(Record):
    """One line of `episodes.jsonl`. An error has a reason and is never a failure."""

    arm: str
    key: EpisodeKey
    protocol: str
    """`Protocol.digest()`."""
    outcome: Literal["success", "failure", "error", "uncovered"]
    """`uncovered`: the scripted expert has no skill for the task's goal; like an error, not in any rate."""
    reason: str | None
    """Of an error; of a failure what the scripted expert was at, None for other policies."""
    scene_sha256: str | None
    steps: int
    """Control steps after settling."""
    looks: int
    wall_seconds: float
    tries: int
    first_images_sha256: str | None = None
    """Of what the policy was shown at its first look, all cameras; None where nothing was rendered."""
    last_images_sha256: str | None = None
    """At its last look."""


class ArmRecord(Record):
    """`protocol.json` beside an arm's episodes: what made them."""

    arm: str
    policy: str
    """Where the policy came from: an export folder, a server's URL, or a control's name."""
    protocol: Protocol
    fingerprint: Fingerprint
    gl_vendor: str | None
    gl_renderer: str | None
