"""Nights on which a worse policy plays, drawn task by task from recorded episodes: is it called REGRESSED?"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.compare.baseline import TaskCount, task_counts
from harness.compare.drill import TWICE, DrillRow, row
from harness.compare.questions import SuccessQuestion
from harness.compare.results import Results, unique
from harness.libero.handicap import handicap_of
from harness.plan import Plan

Rate = Callable[[TaskCount], float]
"""The rate at which a night's episodes of one task succeed."""


@dataclass(frozen=True)
class RecordedArm:
    """What an arm did in one task suite: counts per task, at least one episode in all."""

    name: str
    task_suite: str
    counts: list[TaskCount]

    @property
    def successes(self) -> int:
        return sum(count.successes for count in self.counts)

    @property
    def rate(self) -> float:
        return self.successes / sum(count.valid for count in self.counts)

    @property
    def where(self) -> str:
        return f"{self.name}, {self.task_suite}"


def policy_rows(found: Sequence[Results], plan: Plan, nights: int, seed: int) -> list[DrillRow]:
    """From the newest result with episodes, what of these it allows.

    Graded experts in the place of the expert that was accepted, one of them against itself, and the arm with the most
    successes, worse by twice what can be detected.
    """
    newest = next((results for results in reversed(found) if results.episodes), None)
    recorded = _recorded(newest) if newest else []
    rows: list[DrillRow] = []
    for arms in recorded:
        graded = [arm for arm in arms if handicap_of(arm.name) is not None]
        experts = [arm for arm in arms if arm.name == "expert"]
        rows += [_row_in_place_of(expert, arm, plan, nights, seed) for expert in experts for arm in graded]
        if graded:
            rows.append(_unchanged_row(min(graded, key=lambda arm: abs(arm.rate - 0.5)), plan, nights, seed))
    best = max((arm for arms in recorded for arm in arms), key=lambda arm: arm.successes, default=None)
    thinned = thinned_row(best, plan, nights, seed) if best else None
    return [*rows, thinned] if thinned else rows


def thinned_row(arm: RecordedArm, plan: Plan, nights: int, seed: int) -> DrillRow | None:
    """An arm that loses twice the detectable difference. None where its rate leaves no room for such a fall."""
    stated = _detectable(arm, plan)
    if stated is None or TWICE * stated > arm.rate:
        return None
    keep = 1 - TWICE * stated / arm.rate
    rng = random.Random(seed)
    caught = _called(arm, lambda task: keep * (task.successes + 0.5) / (task.valid + 1), plan, nights, rng)
    return row(f"policy, {100 * TWICE * stated:.0f} points worse", arm.where, "resampled", nights, caught, "caught")


def _row_in_place_of(expert: RecordedArm, arm: RecordedArm, plan: Plan, nights: int, seed: int) -> DrillRow:
    """A promise only where the arm is worse by twice the detectable difference."""
    caught = _called(expert, _rates_of(arm), plan, nights, random.Random(seed))
    made = row(f"{arm.name} ({arm.rate:.0%})", expert.where, "resampled", nights, caught, "caught")
    stated = _detectable(expert, plan)
    promised = stated is not None and expert.rate - arm.rate >= TWICE * stated
    return made if promised else made.model_copy(update={"holds": None})


def _unchanged_row(arm: RecordedArm, plan: Plan, nights: int, seed: int) -> DrillRow:
    """The accepted counts are drawn anew for every night, too."""
    rng = random.Random(seed)
    alarms = 0
    for _ in range(nights):
        accepted = RecordedArm(arm.name, arm.task_suite, _drawn(arm.counts, _own_rate, rng))
        alarms += _called(accepted, _rates_of(arm), plan, 1, rng)
    return row("none (A/A)", arm.where, "resampled", nights, alarms, "quiet")


def _recorded(results: Results) -> list[list[RecordedArm]]:
    """A result's arms, those of one task suite together."""
    counts = {record.arm: task_counts(record.arm, results.episodes) for record in results.arms}
    return [
        [RecordedArm(arm, task_suite, mine) for arm, all_ in counts.items() if (mine := _of_suite(all_, task_suite))]
        for task_suite in unique(count.task_suite for all_ in counts.values() for count in all_)
    ]


def _of_suite(counts: list[TaskCount], task_suite: str) -> list[TaskCount]:
    return [count for count in counts if count.task_suite == task_suite]


def _own_rate(task: TaskCount) -> float:
    return task.successes / task.valid


def _rates_of(arm: RecordedArm) -> Rate:
    rates = {count.task: _own_rate(count) for count in arm.counts}
    return lambda task: rates[task.task]


def _alpha(plan: Plan) -> float:
    """As if this arm and one more figure beside it were gated."""
    return plan.gate.false_alarm_rate / 2


def _detectable(arm: RecordedArm, plan: Plan) -> float | None:
    question = SuccessQuestion(arm.name, arm.task_suite, arm.counts, plan.gate)
    return question.ask(arm.counts, _alpha(plan)).draft.smallest_detectable


def _called(accepted: RecordedArm, rate: Rate, plan: Plan, nights: int, rng: random.Random) -> int:
    """Nights at this rate that are called REGRESSED against the accepted counts, after both stages of a real night."""
    question = SuccessQuestion(accepted.name, accepted.task_suite, accepted.counts, plan.gate)
    called = 0
    for _ in range(nights):
        first, again = (question.ask(_drawn(accepted.counts, rate, rng), _alpha(plan)) for _ in range(2))
        called += first.p_worse < _alpha(plan) and first.matters and again.p_worse < plan.gate.false_alarm_rate
    return called


def _drawn(counts: list[TaskCount], rate: Rate, rng: random.Random) -> list[TaskCount]:
    return [
        count.model_copy(update={"successes": sum(rng.random() < rate(count) for _ in range(count.valid))})
        for count in counts
    ]
