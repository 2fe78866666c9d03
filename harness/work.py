"""What is left of a plan, and what to do next: a pure function of the plan and of what the disk says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from harness.compare.metrics import METRICS
from harness.compare.verdict import Alarm
from harness.plan import EpisodeKey, Plan, PlannedArm, PlannedRun, RunKind, model_key
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
    disturbed: bool = False
    """By what else went on on the machine (`harness.train.disturbance`)."""

    @property
    def is_calm(self) -> bool:
        """It ended well, and undisturbed."""
        return self.outcome == "OK" and not self.disturbed


@dataclass(frozen=True)
class Progress:
    """What has been done so far, read from disk before every decision."""

    demonstrations_ready: bool = False
    attempts: dict[str, list[AttemptState]] = field(default_factory=dict)
    """Run key → attempts, oldest first."""
    evaluated: dict[str, frozenset[EpisodeKey]] = field(default_factory=dict)
    """Arm → episodes with a record."""
    alarms: tuple[Alarm, ...] | None = None
    """What the first stage of the gate calls worse; None until it has been asked of all that has ended."""


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
    again: bool = False
    """It has ended well before, in a block that was disturbed."""

    @property
    def name(self) -> str:
        key = f"{self.run.key} alone" if self.alone and self.run.block else self.run.key
        return f"{key} again, attempt {self.attempt}" if self.again else key

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True)
class TakeTurns:
    """What is left of a block: runs that are alive together."""

    runs: tuple[Train, ...]

    @property
    def company(self) -> tuple[str | None, bool]:
        """The block, and whether it is measured again."""
        return self.runs[0].run.block, self.runs[0].again

    @property
    def name(self) -> str:
        block, again = self.company
        return f"block {block}" + (" again" if again else "")

    @property
    def names(self) -> frozenset[str]:
        return frozenset(train.name for train in self.runs)


@dataclass(frozen=True)
class ArmEpisodes:
    """What one arm has left to play."""

    arm: PlannedArm
    episodes: tuple[EpisodeKey, ...]


FEW_ARMS = 4
"""So many are named, or shown with their intervals, in what is read while one waits."""


@dataclass(frozen=True)
class Evaluate:
    """Episodes of all arms that have some left: together, so that a scene is compiled once for all of them."""

    arms: tuple[ArmEpisodes, ...]

    @property
    def name(self) -> str:
        names = [part.arm.name for part in self.arms]
        more = f" and {len(names) - FEW_ARMS} more" if len(names) > FEW_ARMS else ""
        return f"evaluation of {', '.join(names[:FEW_ARMS])}{more}"

    @property
    def names(self) -> frozenset[str]:
        return frozenset(part.arm.name for part in self.arms)

    @property
    def episodes(self) -> int:
        return sum(len(part.episodes) for part in self.arms)


@dataclass(frozen=True)
class AskGate:
    """Everything planned is there: compare it with the baseline, to see what must be measured again."""

    name: str = "first stage of the gate"

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.name})


Work = MakeDemonstrations | Train | TakeTurns | Evaluate | AskGate
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
    """All that is left, in order, as far as can be known now.

    What the first stage of the gate calls worse is measured again by fresh processes, and success by fresh episodes.
    """
    work: list[Work] = []
    blocked = False
    if plan.needs_demonstrations and not progress.demonstrations_ready:
        demonstrations = MakeDemonstrations(plan.data)
        blocked = demonstrations.name in given_up
        work += [] if blocked else [demonstrations]
    able = [run for run in plan.runs if not (blocked and run.cell.data.source == "expert")]
    trainable = _add_training(work, able, progress, given_up)
    _add_repeats(work, able, plan.disturbed_repeats, progress, given_up)
    arms = [arm for arm in plan.arms if arm.run_key is None or arm.run_key in trainable]
    _add_evaluation(work, arms, plan.episodes, progress, given_up)
    if work:
        return work
    if progress.alarms is None:
        ask = AskGate()
        planned = bool(plan.confirmations or plan.confirmation_episodes)
        return [ask] if planned and ask.name not in given_up else []
    suspects = _suspects(plan, progress.alarms)
    _add_training(work, suspects, progress, given_up)
    _add_repeats(work, suspects, plan.disturbed_repeats, progress, given_up)
    accused = {alarm.subject for alarm in progress.alarms if alarm.kind is None}
    arms = [arm for arm in plan.arms if arm.name in accused]
    _add_evaluation(work, arms, plan.confirmation_episodes, progress, given_up)
    return work


def _suspects(plan: Plan, alarms: tuple[Alarm, ...]) -> list[PlannedRun]:
    """Runs that measure again what alarmed, with the company in which it was measured and what it was held against."""
    accused = {(alarm.subject, alarm.kind) for alarm in alarms}
    paired = [alarm for alarm in alarms if alarm.metric in METRICS and METRICS[alarm.metric].paired]
    accused |= {(f"{model_key(alarm.subject)}-{plan.reference}", alarm.kind) for alarm in paired}
    own = [run for run in plan.confirmations if (run.cell.label, run.kind) in accused]
    keys, blocks = {run.key for run in own}, {run.block for run in own if run.block is not None}
    return [run for run in plan.confirmations if run.key in keys or run.block in blocks]


def _add_training(
    work: list[Work], runs: list[PlannedRun], progress: Progress, given_up: frozenset[str]
) -> frozenset[str]:
    """Adds what is left of the runs; returns the keys of those that have ended well or still may."""
    trainable = set()
    for run in runs:
        attempts = progress.attempts.get(run.key, [])
        last = _first_well(attempts) or (attempts[-1] if attempts else None)
        finished = last is not None and last.outcome in FINAL and not _crowded_out(last)
        train = _next_attempt(run, attempts)
        waiting = not finished and train.name not in given_up
        if waiting:
            _append(work, train)
        if waiting or (finished and last is not None and last.outcome == "OK"):
            trainable.add(run.key)
    return frozenset(trainable)


def _add_repeats(
    work: list[Work], runs: list[PlannedRun], most_in_vain: int, progress: Progress, given_up: frozenset[str]
) -> None:
    """Adds disturbed blocks once more, behind all that has not been measured at all: what disturbed may be over then.

    A block is what one repeat of a model measures, in turns or one after the other: pairs are made within it, so it
    is repeated whole: what has been measured again waits for the rest of it. When `most_in_vain` repeats were
    disturbed as well, the machine is taken as it is.
    """
    blocks: dict[tuple[str, int], list[PlannedRun]] = {}
    for run in runs:
        if run.kind is RunKind.TIMING:
            blocks.setdefault((run.cell.model_key, run.repeat), []).append(run)
    rounds = {key: _rounds([progress.attempts.get(run.key, []) for run in block]) for key, block in blocks.items()}
    in_vain = sum(not calm for block in rounds.values() for calm in block[1:])
    for key, block in blocks.items():
        if in_vain >= most_in_vain or not rounds[key] or rounds[key][-1]:
            continue
        for train in _next_round(block, len(rounds[key]), progress):
            if train.name not in given_up:
                _append(work, train)


def _next_round(block: list[PlannedRun], rounds: int, progress: Progress) -> list[Train]:
    """What a block that was measured whole so many times lacks of the next time. A run alone is done with it once it is
    made; those in turns are made all together, as long as one of them lacks it."""
    again = []
    for run in block:
        attempts = progress.attempts.get(run.key, [])
        if own := _own_rounds(attempts):
            train = replace(_next_attempt(run, attempts), resume_from=None, again=True)
            again.append((train, len(own) == rounds))
    in_turns = any(lacks for train, lacks in again if not train.alone)
    return [train for train, lacks in again if (lacks if train.alone else in_turns)]


def _rounds(block: list[list[AttemptState]]) -> list[bool]:
    """For each time that a block was measured whole, whether all of its runs were calm; empty until it was once.

    Runs that can never end well have no rounds, and are left out.
    """
    if any(not _own_rounds(attempts) and (not attempts or attempts[-1].outcome not in FINAL) for attempts in block):
        return []
    done = [own for attempts in block if (own := _own_rounds(attempts))]
    return [all(attempt.is_calm for attempt in together) for together in zip(*done, strict=False)]


def _own_rounds(attempts: list[AttemptState]) -> list[AttemptState]:
    """The times that a run was measured: the first is the attempt that ended well first, and what came before were
    tries at it. Interrupted attempts are none."""
    first = _first_well(attempts)
    later = attempts[attempts.index(first) + 1 :] if first is not None else []
    return [
        attempt for attempt in (first, *later) if attempt is not None and attempt.outcome not in (None, "INTERRUPTED")
    ]


def _first_well(attempts: list[AttemptState]) -> AttemptState | None:
    return next((attempt for attempt in attempts if attempt.outcome == "OK"), None)


def _add_evaluation(
    work: list[Work], arms: list[PlannedArm], episodes: list[EpisodeKey], progress: Progress, given_up: frozenset[str]
) -> None:
    left = []
    for arm in arms:
        done = progress.evaluated.get(arm.name, frozenset())
        own = tuple(key for key in episodes if key not in done)
        if own and arm.name not in given_up:
            left.append(ArmEpisodes(arm, own))
    if left:
        work.append(Evaluate(tuple(left)))


def _crowded_out(attempt: AttemptState) -> bool:
    return attempt.outcome == "OOM" and attempt.in_turns


def _next_attempt(run: PlannedRun, attempts: list[AttemptState]) -> Train:
    checkpoints = [attempt.checkpoint for attempt in attempts if attempt.checkpoint]
    number = attempts[-1].number + 1 if attempts else 1
    alone = run.block is None or any(_crowded_out(attempt) for attempt in attempts)
    return Train(run, number, checkpoints[-1] if checkpoints else None, alone)


def _append(work: list[Work], train: Train) -> None:
    """Adds a run; one in turns in one piece with its block, whatever has been added since."""
    if train.alone:
        work.append(train)
        return
    for place, piece in enumerate(work):
        if isinstance(piece, TakeTurns) and piece.company == (train.run.block, train.again):
            work[place] = TakeTurns((*piece.runs, train))
            return
    work.append(TakeTurns((train,)))
