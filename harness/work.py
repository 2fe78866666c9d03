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
    in_turns: bool = False
    """Other process groups were alive beside it."""


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

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True)
class Train:
    run: PlannedRun
    attempt: int
    resume_from: str | None
    alone: bool = True
    """Planned in turns but out of memory there, a run has another go with the machine to itself."""

    @property
    def name(self) -> str:
        return f"{self.run.key} alone" if self.alone and self.run.block else self.run.key

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True)
class TakeTurns:
    """What is left of a block: runs that are alive together."""

    runs: tuple[Train, ...]

    @property
    def name(self) -> str:
        return f"block {self.runs[0].run.block}"

    @property
    def names(self) -> frozenset[str]:
        return frozenset(train.name for train in self.runs)


@dataclass(frozen=True)
class Evaluate:
    arm: PlannedArm
    episodes: tuple[EpisodeKey, ...]

    @property
    def name(self) -> str:
        return self.arm.name

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.name})


Work = MakeDemonstrations | Train | TakeTurns | Evaluate
"""`names` is what to add to `given_up` once the work has had its turn."""

FINAL = frozenset({"OK", "OOM", "DIVERGED", "UNSUPPORTED"})
"""Outcomes that another attempt would only repeat, except for an OOM among others in turns, which says little of the
run by itself. CRASHED, HUNG, INTERRUPTED and killed runs are tried again."""


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
        finished = bool(attempts) and attempts[-1].outcome in FINAL and not _crowded_out(attempts[-1])
        train = _next_attempt(run, attempts)
        waiting = not finished and train.name not in given_up and not (blocked and run.cell.data.source == "expert")
        if waiting:
            _append(work, train)
        if waiting or (finished and attempts[-1].outcome == "OK"):
            trainable.add(run.key)
    for arm in plan.arms:
        done = progress.evaluated.get(arm.name, frozenset())
        left = tuple(key for key in plan.episodes if key not in done)
        possible = arm.run_key is None or arm.run_key in trainable
        if left and possible and arm.name not in given_up:
            work.append(Evaluate(arm, left))
    return work


def _crowded_out(attempt: AttemptState) -> bool:
    return attempt.outcome == "OOM" and attempt.in_turns


def _next_attempt(run: PlannedRun, attempts: list[AttemptState]) -> Train:
    checkpoints = [attempt.checkpoint for attempt in attempts if attempt.checkpoint]
    number = attempts[-1].number + 1 if attempts else 1
    alone = run.block is None or any(_crowded_out(attempt) for attempt in attempts)
    return Train(run, number, checkpoints[-1] if checkpoints else None, alone)


def _append(work: list[Work], train: Train) -> None:
    """Adds a run, in one piece with the runs of its block that stand last."""
    last = work[-1] if work else None
    if train.alone:
        work.append(train)
    elif isinstance(last, TakeTurns) and last.runs[0].run.block == train.run.block:
        work[-1] = TakeTurns((*last.runs, train))
    else:
        work.append(TakeTurns((train,)))
