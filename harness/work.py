"""What is left of a plan, and what to do next: a pure function of the plan and of what the disk says."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.plan import EpisodeKey, Plan, PlannedArm, PlannedRun
from harness.suite import Data


@dataclass(frozen=True)
class AttemptState:
    """One attempt as the disk tells it. `outcome` is None when nothing says how it ended: it was killed."""

    number: int
    outcome: str | None
    checkpoint: str | None
    """Its last complete checkpoint folder."""


@dataclass(frozen=True)
class Progress:
    """What has been done so far, read from disk before every decision."""

    demonstrations_ready: bool = False
    attempts: dict[str, list[AttemptState]] = field(default_factory=dict)
    """Run key → attempts, oldest first."""
    evaluated: dict[str, frozenset[EpisodeKey]] = field(default_factory=dict)
    """Arm → episodes with a record."""


@dataclass(frozen=True)
class MakeDemonstrations:
    data: Data
    name: str = "demonstrations"


@dataclass(frozen=True)
class Train:
    run: PlannedRun
    attempt: int
    resume_from: str | None

    @property
    def name(self) -> str:
        return self.run.key


@dataclass(frozen=True)
class Evaluate:
    arm: PlannedArm
    episodes: tuple[EpisodeKey, ...]

    @property
    def name(self) -> str:
        return self.arm.name


Work = MakeDemonstrations | Train | Evaluate

FINAL = frozenset({"OK", "OOM", "DIVERGED", "UNSUPPORTED"})
"""Outcomes that another attempt would only repeat. CRASHED, HUNG, INTERRUPTED and killed runs are tried again."""


def next_work(plan: Plan, progress: Progress, given_up: frozenset[str] = frozenset()) -> Work | None:
    """The first thing left to do, or None when all is done that can be.

    Resuming after a kill, repeating a crashed run and carrying on with an evaluation are this one function
    asked again with what is now on disk.

    Args:
        given_up: names of work that failed since the command was started; it is left for the next command.
    """
    return next(iter(remaining_work(plan, progress, given_up)), None)


def remaining_work(plan: Plan, progress: Progress, given_up: frozenset[str] = frozenset()) -> list[Work]:
    """All that is left, in order, as far as can be known now."""
    work: list[Work] = []
    blocked = False
    if plan.needs_demonstrations and not progress.demonstrations_ready:
        demonstrations = MakeDemonstrations(plan.data)
        blocked = demonstrations.name in given_up
        work += [] if blocked else [demonstrations]
    trainable = set()
    for run in plan.runs:
        attempts = progress.attempts.get(run.key, [])
        finished = bool(attempts) and attempts[-1].outcome in FINAL
        waiting = not finished and run.key not in given_up and not (blocked and run.cell.data.source == "expert")
        if waiting:
            checkpoints = [attempt.checkpoint for attempt in attempts if attempt.checkpoint]
            number = attempts[-1].number + 1 if attempts else 1
            work.append(Train(run, number, checkpoints[-1] if checkpoints else None))
        if waiting or (finished and attempts[-1].outcome == "OK"):
            trainable.add(run.key)
    for arm in plan.arms:
        done = progress.evaluated.get(arm.name, frozenset())
        left = tuple(key for key in plan.episodes if key not in done)
        possible = arm.run_key is None or arm.run_key in trainable
        if left and possible and arm.name not in given_up:
            work.append(Evaluate(arm, left))
    return work
