"""Tables other people published, kept as counts of episodes so that their differences get intervals too."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from harness.compare.verdict import Evidence, Judgement, Verdict, judge_pair_of
from harness.errors import DamagedRecord
from harness.records import Record, Value
from harness.statistics.families import holm
from harness.statistics.interval import Interval
from harness.statistics.power import detectable_rate_difference
from harness.statistics.proportions import newcombe
from harness.statistics.strata import Stratum, equivalent_p, mean_difference, two_sided_p
from harness.task_suites import TaskSuite

FOLDER = Path(__file__).parents[2] / "baselines" / "published"
SAME_LEVEL = 0.02
"""Averages over 2000 episodes a side that differ by less are called the same level; fewer episodes cannot show it."""


class PublishedRow(Value):
    """One model under one backend: success in percent per task suite, as printed."""

    model: str
    backend: str
    percent: dict[TaskSuite, float]
    average_percent: float
    """As printed; not recomputed."""


class PublishedClaim(Value):
    """A claim on speed, in its author's words."""

    words: str
    least_speedup: float = Field(gt=0)
    conditions: str


class PublishedTable(Record):
    """A published comparison of two backends. Another machine's: shown beside ours, never mixed with it."""

    name: str
    source: str
    conditions: str
    episodes_per_task_suite: int = Field(gt=0)
    reference_backend: str
    candidate_backend: str
    claim: PublishedClaim | None
    rows: list[PublishedRow]

    @model_validator(mode="after")
    def _percentages_are_counts(self) -> PublishedTable:
        for row in self.rows:
            for suite, percent in row.percent.items():
                count = percent * self.episodes_per_task_suite / 100
                if abs(count - round(count)) > 1e-6:
                    raise ValueError(
                        f"{row.model}/{row.backend}: {percent:g}% of {self.episodes_per_task_suite} in {suite} "
                        "is not a whole number of episodes"
                    )
        return self

    def count(self, row: PublishedRow, task_suite: TaskSuite) -> int:
        return round(row.percent[task_suite] * self.episodes_per_task_suite / 100)


class PublishedDifference(Value):
    """One model in one task suite, two backends, independent episodes."""

    model: str
    task_suite: TaskSuite
    reference_successes: int
    candidate_successes: int
    n: int
    """Episodes of each side."""
    difference: Interval
    """Candidate minus reference, Newcombe."""
    adjusted_p: float
    """Fisher's exact test, two-sided by doubling, Holm over the table."""
    shown: bool
    """`adjusted_p` below 1 - confidence: more than chance among episodes."""


class PublishedAverage(Value):
    """One model's mean over the task suites, two backends; each suite is a stratum."""

    model: str
    reference_rate: float
    candidate_rate: float
    n: int
    """Episodes of each side."""
    difference: Interval
    """Candidate minus reference, the suites weighing alike."""
    adjusted_p: float
    """Exact stratified (CMH) test, two-sided by doubling, Holm over the models."""
    shown: bool
    equivalence_p: float
    """Two one-sided tests within the margin, Holm over the models."""
    equivalent: bool
    smallest_detectable: float | None


class PublishedComparison(Value):
    """What a published table shows by its own counts."""

    table: PublishedTable
    confidence: float
    margin: float
    """Averages closer than this are the same level."""
    differences: list[PublishedDifference]
    averages: list[PublishedAverage]
    judgements: list[Judgement]
    """Shown differences of single suites, then every average."""


def load_published(folder: Path = FOLDER) -> list[PublishedTable]:
    """All tables of a folder, by file name; none where the folder is missing. Raises DamagedRecord."""
    tables = []
    for file in sorted(folder.glob("*.json")):
        try:
            tables.append(PublishedTable.model_validate_json(file.read_bytes()))
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"])
            raise DamagedRecord(f"{file}: not a readable published table: {where} {fault['msg']}") from None
    return tables


def compare_published(table: PublishedTable, confidence: float, margin: float = SAME_LEVEL) -> PublishedComparison:
    """Every model that the table has under both backends: suite by suite, and on average."""
    sides = {(row.model, row.backend): row for row in table.rows}
    strata: dict[str, dict[TaskSuite, Stratum]] = {}
    for model in dict.fromkeys(row.model for row in table.rows):
        old, new = sides.get((model, table.reference_backend)), sides.get((model, table.candidate_backend))
        if old is not None and new is not None:
            strata[model] = {suite: _stratum(table, old, new, suite) for suite in old.percent if suite in new.percent}
    differences = _differences(strata, confidence)
    averages = _averages(strata, confidence, margin)
    return PublishedComparison(
        table=table,
        confidence=confidence,
        margin=margin,
        differences=differences,
        averages=averages,
        judgements=[
            *(_judge_difference(table, found, confidence) for found in differences if found.shown),
            *(_judge_average(table, found, confidence, margin) for found in averages),
        ],
    )


def _stratum(table: PublishedTable, old: PublishedRow, new: PublishedRow, suite: TaskSuite) -> Stratum:
    n = table.episodes_per_task_suite
    return Stratum(reference=table.count(old, suite), reference_n=n, candidate=table.count(new, suite), candidate_n=n)


def _differences(strata: dict[str, dict[TaskSuite, Stratum]], confidence: float) -> list[PublishedDifference]:
    counts = [(model, suite, s) for model, suites in strata.items() for suite, s in suites.items()]
    p_values = [two_sided_p([s]) for _, _, s in counts]
    return [
        PublishedDifference(
            model=model,
            task_suite=suite,
            reference_successes=s.reference,
            candidate_successes=s.candidate,
            n=s.reference_n,
            difference=newcombe((s.reference, s.reference_n), (s.candidate, s.candidate_n), confidence),
            adjusted_p=p,
            shown=p < 1 - confidence,
        )
        for (model, suite, s), p in zip(counts, holm(p_values), strict=True)
    ]


def _averages(strata: dict[str, dict[TaskSuite, Stratum]], confidence: float, margin: float) -> list[PublishedAverage]:
    whole = {model: list(suites.values()) for model, suites in strata.items() if suites}
    unlike = holm([two_sided_p(suites) for suites in whole.values()])
    alike = holm([equivalent_p(suites, margin) for suites in whole.values()])
    found = []
    for (model, suites), p_unlike, p_alike in zip(whole.items(), unlike, alike, strict=True):
        n = sum(s.reference_n for s in suites)
        rate = sum(s.reference for s in suites) / n
        found.append(
            PublishedAverage(
                model=model,
                reference_rate=rate,
                candidate_rate=sum(s.candidate for s in suites) / n,
                n=n,
                difference=mean_difference(suites, confidence),
                adjusted_p=p_unlike,
                shown=p_unlike < 1 - confidence,
                equivalence_p=p_alike,
                equivalent=p_alike < 1 - confidence,
                smallest_detectable=detectable_rate_difference(rate, n, n, (1 - confidence) / 2),
            )
        )
    return found


def _judge_difference(table: PublishedTable, found: PublishedDifference, confidence: float) -> Judgement:
    old, n = found.reference_successes / found.n, found.n
    evidence = Evidence(
        effect=found.difference,
        kind="difference",
        smallest_detectable=detectable_rate_difference(old, n, n, (1 - confidence) / 2),
        false_alarm_rate=1 - confidence,
        n=n,
        value=found.candidate_successes / n,
        reference=old,
    )
    counts = f"{found.reference_successes} → {found.candidate_successes} of {n}"
    reason = f"{counts}, far outside chance among episodes (adjusted p {found.adjusted_p:.1g})"
    return _judged(table, found.model, f"success_rate {found.task_suite}", evidence, _unlike(found.difference, reason))


def _judge_average(table: PublishedTable, found: PublishedAverage, confidence: float, margin: float) -> Judgement:
    evidence = Evidence(
        effect=found.difference,
        kind="difference",
        smallest_detectable=found.smallest_detectable,
        false_alarm_rate=1 - confidence,
        n=found.n,
        value=found.candidate_rate,
        reference=found.reference_rate,
    )
    within = f"±{100 * margin:g} percentage points"
    if found.equivalent:
        outcome = Verdict.PASS, f"equivalent within {within} (adjusted p {found.equivalence_p:.1g})"
    elif found.shown:
        reason = f"not the same level: chance among episodes is ruled out (adjusted p {found.adjusted_p:.1g})"
        outcome = _unlike(found.difference, reason)
    else:
        outcome = Verdict.INCONCLUSIVE, f"neither a difference nor equivalence within {within} is shown"
    return _judged(table, found.model, "success_rate average", evidence, outcome)


def _unlike(difference: Interval, reason: str) -> tuple[Verdict, str]:
    """Less success of one checkpoint is no word on its backend: one training run stands behind each row."""
    return (Verdict.IMPROVED if difference.estimate > 0 else Verdict.INCONCLUSIVE), reason


def _judged(
    table: PublishedTable, model: str, metric: str, evidence: Evidence, outcome: tuple[Verdict, str]
) -> Judgement:
    pair = f"{model} {table.reference_backend}", f"{model} {table.candidate_backend}"
    verdict, reason = outcome
    return judge_pair_of("published", pair, metric, evidence, (verdict, f"these two checkpoints: {reason}"))
