"""How long and how much disk a plan will take: rules of thumb, corrected by what has been seen so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.plan import Plan
from harness.work import AskGate, Evaluate, MakeDemonstrations, Progress, TakeTurns, Train, Work, remaining_work

_STARTUP_SECONDS = {"deepspeed": 14.0, "fsdp": 11.0, "fsdp2": 11.0, "ddp": 11.0}
_STEP_SECONDS = {"deepspeed": 0.20, "fsdp": 0.12, "fsdp2": 0.12, "ddp": 0.02}
"""Cost of a step that does not depend on the batch; measured at micro size on 2 cores, 2 gloo ranks."""
_SAMPLE_SECONDS = {"micro": 0.014, "tiny": 0.002}
_PARAMETERS = {"micro": 1_500_000, "tiny": 100_000}
_EPISODE_SECONDS = {"expert": 6.0, "still": 8.0}
_LEARNED_EPISODE_SECONDS = 14.0
_POOL_STARTUP_SECONDS = 30.0
"""Starting the simulators and compiling their first scenes."""
_DEMONSTRATION_SECONDS = 9.0
_DEMONSTRATION_BYTES = 6_000_000
_EVALUATED_BYTES = 12_000


def work_seconds(work: Work, workers: int) -> float:
    """Expected duration of one piece of work on the 2-core machine the constants were read on."""
    match work:
        case MakeDemonstrations(data=data):
            return len(data.tasks) * data.episodes * _DEMONSTRATION_SECONDS / workers
        case Train(run=run):
            backend = run.cell.backend.backend
            step = (
                _STEP_SECONDS[backend]
                + run.cell.samples_per_step * _SAMPLE_SECONDS.get(run.cell.size, _SAMPLE_SECONDS["micro"]) / 2
            )
            return _STARTUP_SECONDS[backend] + run.steps * step
        case TakeTurns(runs=runs):
            return sum(work_seconds(train, workers) for train in runs)
        case AskGate():
            return 2.0
        case Evaluate(arms=arms):
            each = [_EPISODE_SECONDS.get(part.arm.name, _LEARNED_EPISODE_SECONDS) for part in arms]
            acting = sum(len(part.episodes) * seconds for part, seconds in zip(arms, each, strict=True))
            return _POOL_STARTUP_SECONDS + acting / workers


def plan_seconds(plan: Plan, progress: Progress) -> float:
    return sum(work_seconds(work, plan.workers) for work in remaining_work(plan, progress))


def plan_disk_bytes(plan: Plan) -> int:
    """Demonstrations, one checkpoint and one export per learning run, and the episodes' actions."""
    learning = [run for run in plan.runs if run.checkpoint_every is not None]
    weights = sum(_PARAMETERS.get(run.cell.size, _PARAMETERS["micro"]) * 4 * (3 + 1) for run in learning)
    demonstrations = len(plan.data.tasks) * plan.data.episodes if plan.needs_demonstrations else 0
    episodes = len(plan.arms) * len(plan.episodes)
    return weights + demonstrations * _DEMONSTRATION_BYTES + episodes * _EVALUATED_BYTES + len(plan.runs) * 100_000


_TELLING_SHARE = 0.1


@dataclass
class Pace:
    """Scales the rules of thumb by this machine's own pace, as finished work reveals it."""

    workers: int
    _expected: float = field(default=0.0, init=False)
    _taken: float = field(default=0.0, init=False)

    def record(self, work: Work, seconds: float) -> None:
        self._expected += work_seconds(work, self.workers)
        self._taken += seconds

    def seconds_left(self, remaining: list[Work], share_done: float = 0.0, elapsed_seconds: float = 0.0) -> float:
        """For the work that is left, of whose first piece a share is done already, in so many seconds.

        From a tenth on, the first piece is its own best measure.
        """
        expected = [work_seconds(work, self.workers) for work in remaining]
        pace = self._taken / self._expected if self._expected else 1.0
        if not expected:
            return 0.0
        first = expected[0] * (1 - share_done) * pace
        if share_done >= _TELLING_SHARE and elapsed_seconds > 0:
            first = elapsed_seconds * (1 - share_done) / share_done
        return first + sum(expected[1:]) * pace
