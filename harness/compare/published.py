"""Tables other people published, kept as counts of episodes so that their differences get intervals too."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from harness.errors import DamagedRecord
from harness.records import Record, Value
from harness.statistics.families import holm
from harness.statistics.interval import Interval
from harness.statistics.proportions import fisher_p, newcombe
from harness.suite import TaskSuite

FOLDER = Path(__file__).parents[2] / "baselines" / "published"


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


class PublishedComparison(Value):
    """What a published table shows by its own counts."""

    table: PublishedTable
    differences: list[PublishedDifference]


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


def compare_published(table: PublishedTable, confidence: float) -> PublishedComparison:
    """Every model that the table has under both backends, suite by suite."""
    sides = {(row.model, row.backend): row for row in table.rows}
    n = table.episodes_per_task_suite
    counts: list[tuple[str, TaskSuite, int, int]] = []
    for model in dict.fromkeys(row.model for row in table.rows):
        old, new = sides.get((model, table.reference_backend)), sides.get((model, table.candidate_backend))
        if old is None or new is None:
            continue
        common = [suite for suite in old.percent if suite in new.percent]
        counts += [(model, suite, table.count(old, suite), table.count(new, suite)) for suite in common]
    p_values = [_two_sided((old, n), (new, n)) for _, _, old, new in counts]
    differences = [
        PublishedDifference(
            model=model,
            task_suite=suite,
            reference_successes=old,
            candidate_successes=new,
            n=n,
            difference=newcombe((old, n), (new, n), confidence),
            adjusted_p=p,
            shown=p < 1 - confidence,
        )
        for (model, suite, old, new), p in zip(counts, holm(p_values), strict=True)
    ]
    return PublishedComparison(table=table, differences=differences)


def _two_sided(reference: tuple[int, int], candidate: tuple[int, int]) -> float:
    return min(1.0, 2 * min(fisher_p(reference, candidate, worse) for worse in (True, False)))
