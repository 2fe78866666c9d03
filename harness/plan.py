"""Suite → Plan: every value resolved, every run named and ordered. Pure; no torch, no disk."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from harness.backends.options import BackendOptions
from harness.records import Record, Value
from harness.suite import Data, Evaluation, Gate, Optimizer, TaskSuite


class Cell(Value):
    """Everything that makes a training run what it is. Its identity is `identity`; the label is for people."""

    label: str
    model: str
    size: str
    backend: BackendOptions
    stack: Literal["native"] = "native"
    precision: Literal["fp32", "bf16"] = "fp32"
    ranks: int = Field(default=2, ge=1)
    micro_batch: int = Field(default=8, ge=1)
    accumulation: int = Field(default=1, ge=1)
    clip: float = Field(default=1.0, ge=0)
    """Largest global gradient norm; 0 switches clipping off."""
    activation_checkpointing: bool = False
    optimizer: Optimizer = Optimizer()
    data: Data = Data()

    @property
    def identity(self) -> str:
        return self.digest(exclude={"label"})

    @property
    def samples_per_step(self) -> int:
        """Global batch: samples over all ranks and accumulation steps."""
        return self.ranks * self.micro_batch * self.accumulation


class RunKind(StrEnum):
    TIMING = "timing"
    LEARNING = "learning"


class PlannedRun(Value):
    """One fresh process group to be started."""

    cell: Cell
    kind: RunKind
    repeat: int
    """Timing runs: which repeat. Learning runs: the index of the training seed."""
    training_seed: int
    steps: int
    warmup_steps: int = 0
    checkpoint_every: int | None = None

    @property
    def key(self) -> str:
        """Unique in its plan, and fit for a folder name."""
        return f"{self.cell.label}/{self.kind}-{self.repeat}"


class Unsupported(Value):
    label: str
    reason: str


class EpisodeKey(Value):
    """What an episode depends on, besides the policy. Pairs are made by this key."""

    task_suite: TaskSuite
    task: int
    initial_state: int
    seed: int


class PlannedArm(Value):
    """A policy to evaluate: a learning run's checkpoint, or a control."""

    name: str
    """`expert`, `still`, or the label of the learnt cell with its training seed."""
    run_key: str | None = None
    """The learning run whose export is the policy; None for controls."""


class Estimate(Value):
    """What the plan is expected to take; from stated rules of thumb, not a promise."""

    seconds: float
    disk_bytes: int


class Plan(Record):
    """What will be done, in order, with nothing left to defaults. Saved beside its results."""

    SCHEMA = 1
    suite: str
    purpose: Literal["bench", "gate"]
    seed: int
    runs: list[PlannedRun]
    unsupported: list[Unsupported]
    reference: str | None
    """Label suffix (backend key) every speedup is against."""
    arms: list[PlannedArm]
    episodes: list[EpisodeKey]
    evaluation: Evaluation | None
    gate: Gate
    estimate: Estimate
