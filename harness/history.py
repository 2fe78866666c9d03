"""All results of a suite, or of all suites, as rows: how figures and verdicts moved from result to result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.compare.metrics import METRICS
from harness.compare.results import chosen
from harness.compare.verdict import Judgement
from harness.errors import DamagedRecord
from harness.libero.records import EpisodeRecord
from harness.records import Value
from harness.store import RUN_FILE, ResultFolder, Store, read_lines, read_record
from harness.train.records import RunRecord


class PastRun(Value):
    """The latest ended attempt at one run of one result."""

    suite: str
    result: str
    started_at: str
    """ISO 8601, UTC."""
    hardware_key: str
    cell: str
    kind: str
    repeat: int
    outcome: str
    reason: str | None
    """Why a run has no figures."""
    model: str
    size: str
    backend: str
    ranks: int
    stack: str
    precision: str
    samples_per_step: int
    steadiness: str | None
    final_loss: float | None
    figures: dict[str, float]
    """Metric (`harness.compare.metrics`) → figure in its unit; a metric the run does not have is left out."""
    versions: dict[str, str]


class PastVerdict(Value):
    """One judgement, as it was concluded then."""

    suite: str
    result: str
    question: str
    subject: str
    metric: str
    verdict: str
    effect: float | None
    effect_low: float | None
    effect_high: float | None
    n: int
    reason: str


class PastEpisode(Value):
    """One episode of one arm."""

    suite: str
    result: str
    arm: str
    task_suite: str
    task: int
    initial_state: int
    seed: int
    outcome: str
    steps: int
    wall_seconds: float


@dataclass(frozen=True)
class History:
    """Rows of all results, oldest result first.

    Attributes:
        unreadable: results left out, and why.
    """

    runs: list[PastRun] = field(default_factory=list)
    verdicts: list[PastVerdict] = field(default_factory=list)
    episodes: list[PastEpisode] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def results(self) -> list[str]:
        """Ids, oldest first."""
        return list(dict.fromkeys(run.result for run in self.runs))


def read_history(store: Store, suite: str | None = None, *, episodes: bool = True) -> History:
    """Reads what every result recorded. A damaged result is named in `unreadable` and spoils nothing.

    Args:
        suite: only this suite's results.
        episodes: leave them out where only training matters; there are many.
    """
    history = History()
    for found in each_result(store, suite, episodes=episodes):
        history.runs.extend(found.runs)
        history.verdicts.extend(found.verdicts)
        history.episodes.extend(found.episodes)
        history.unreadable.update(found.unreadable)
    return history


def each_result(store: Store, suite: str | None = None, *, episodes: bool = True) -> Iterator[History]:
    """As `read_history`, one result at a time, for those that need not have all in memory."""
    for name in store.suites() if suite is None else [suite]:
        for result in store.results(name):
            try:
                yield History(
                    runs=_runs(name, result),
                    verdicts=_verdicts(name, result),
                    episodes=_episodes(name, result) if episodes else [],
                )
            except DamagedRecord as error:
                yield History(unreadable={result.path.name: str(error)})


def _runs(suite: str, result: ResultFolder) -> list[PastRun]:
    """Of each run the attempt that counts in its own result, too."""
    found = []
    for run in sorted(str(folder.relative_to(result.path / "train")) for folder in result.path.glob("train/*/*")):
        files = [attempt / RUN_FILE for attempt in result.attempts(run)]
        if attempts := [read_record(file, RunRecord) for file in files if file.exists()]:
            found.append(past_run(suite, result.path.name, chosen(attempts)))
    return found


def past_run(suite: str, result: str, record: RunRecord) -> PastRun:
    """One run's record as a row."""
    cell = record.run.cell
    figures = ((metric.name, metric.read(record)) for metric in METRICS.values())
    return PastRun(
        suite=suite,
        result=result,
        started_at=record.started_at,
        hardware_key=record.fingerprint.hardware_key,
        cell=cell.label,
        kind=record.run.kind,
        repeat=record.run.repeat,
        outcome=record.outcome,
        reason=record.failure.reason if record.failure else None,
        model=cell.model,
        size=cell.size,
        backend=cell.backend.backend,
        ranks=cell.ranks,
        stack=cell.stack,
        precision=cell.precision,
        samples_per_step=cell.samples_per_step,
        steadiness=record.speed.steadiness if record.speed else None,
        final_loss=record.final_loss,
        figures={name: figure for name, figure in figures if figure is not None},
        versions=record.fingerprint.versions,
    )


class _Effect(BaseModel):
    model_config = ConfigDict(extra="ignore")
    estimate: float
    low: float | None
    high: float | None


class _StoredJudgement(BaseModel):
    """What is needed of a judgement. Unknown keys are let pass: an old verdict stays readable."""

    model_config = ConfigDict(extra="ignore")
    question: str
    subject: str
    metric: str
    verdict: str
    effect: _Effect | None = None
    n: int = 0
    reason: str


def _verdicts(suite: str, result: ResultFolder) -> list[PastVerdict]:
    file = result.comparison_file
    if not file.exists():
        return []
    try:
        judgements = [_StoredJudgement.model_validate(found) for found in json.loads(file.read_bytes())["judgements"]]
    except (ValueError, KeyError, TypeError, ValidationError):
        raise DamagedRecord(f"{file}: not a readable comparison") from None
    return [
        PastVerdict(
            suite=suite,
            result=result.path.name,
            question=j.question,
            subject=j.subject,
            metric=j.metric,
            verdict=j.verdict,
            effect=j.effect.estimate if j.effect else None,
            effect_low=j.effect.low if j.effect else None,
            effect_high=j.effect.high if j.effect else None,
            n=j.n,
            reason=j.reason,
        )
        for j in judgements
    ]


def past_verdict(suite: str, result: str, judgement: Judgement) -> PastVerdict:
    """One judgement as a row."""
    effect = judgement.effect
    return PastVerdict(
        suite=suite,
        result=result,
        question=judgement.question,
        subject=judgement.subject,
        metric=judgement.metric,
        verdict=judgement.verdict,
        effect=effect.estimate if effect else None,
        effect_low=effect.low if effect else None,
        effect_high=effect.high if effect else None,
        n=judgement.n,
        reason=judgement.reason,
    )


def with_verdicts(history: History, suite: str, result: str, judgements: list[Judgement]) -> History:
    """The history in which one result is judged anew: its stored verdicts may be older than these."""
    others = [verdict for verdict in history.verdicts if verdict.result != result]
    return replace(history, verdicts=others + [past_verdict(suite, result, judgement) for judgement in judgements])


def _episodes(suite: str, result: ResultFolder) -> list[PastEpisode]:
    found = []
    for file in sorted(result.path.glob("evaluate/*/episodes.jsonl")):
        latest = {(record.arm, record.key): record for record in read_lines(file, EpisodeRecord)}
        found += [past_episode(suite, result.path.name, record) for record in latest.values()]
    return found


def past_episode(suite: str, result: str, record: EpisodeRecord) -> PastEpisode:
    """One episode's record as a row."""
    return PastEpisode(
        suite=suite, result=result, arm=record.arm, task_suite=record.key.task_suite, task=record.key.task,
        initial_state=record.key.initial_state, seed=record.key.seed, outcome=record.outcome, steps=record.steps,
        wall_seconds=record.wall_seconds,
    )  # fmt: skip
