"""`harness report`, `export` and `history`: stored results as words, plots, pages and other programs' files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands.output import Output
from harness.errors import BadInput
from harness.machine import fingerprint
from harness.store import write_atomically

if TYPE_CHECKING:
    from harness.report.dossier import Dossier
    from harness.report.export.trackers import TrackedRun

CONFIDENCE = 0.95
"""Of statements on other people's tables; a suite's own is in its `[gate]`."""


@dataclass(frozen=True)
class ReportRequest:
    """What of a result to show. `result` is None where `pair` or `published` says what is shown."""

    result: str | None
    table: str | None
    width: int
    plots: Path | None
    sheets: str | None
    pair: tuple[str, str] | None
    published: bool


def report(request: ReportRequest, output: Output) -> None:
    """Raises BadInput on a result, table or combination that does not exist."""
    chosen = [request.result is not None, request.pair is not None, request.published]
    if sum(chosen) != 1:
        raise BadInput("RESULT", None, request.result, "one of: a result, --compare A B, or --published")
    if request.published:
        print(_published(), end="")
    elif request.pair is not None:
        print(_side_by_side(request.pair, output), end="")
    else:
        _report_one(request, output)


def _published() -> str:
    from harness.compare.published import compare_published, load_published
    from harness.report.evaluation import published_tables

    parts = []
    for table in load_published():
        found = compare_published(table, CONFIDENCE)
        for title, shown in published_tables(found).items():
            parts += [f"**{title}**", shown.text()]
    return "\n\n".join(parts) + "\n"


def _side_by_side(pair: tuple[str, str], output: Output) -> str:
    from harness.reading import read_plan, read_results
    from harness.report.side_by_side import Side, side_by_side

    sides = []
    for name in pair:
        result = output.store.find(name)
        plan = read_plan(result)
        sides.append(Side(plan, read_results(result, plan)))
    return side_by_side(*sides)


def _report_one(request: ReportRequest, output: Output) -> None:
    from harness.report.plots.gallery import write_plots
    from harness.report.tables import check_request, table_text
    from harness.run import write_page

    assert request.result is not None
    if request.table is not None:
        check_request(request.table, request.width)
    if request.sheets is not None:
        _make_sheets(request.result, request.sheets, output)
    dossier = _dossier(request.result, output)
    result = output.store.find(request.result)
    if request.plots is not None:
        for file in write_plots(dossier, request.plots):
            print(file)
    elif request.table is not None:
        print(table_text(request.table, dossier.comparison, dossier.plan, request.width), end="")
    else:
        page = write_page(result, dossier)
        print(dossier.comparison.model_dump_json(indent=1) if output.json else result.report_file.read_text())
        print(f"the same as a page: {page}", file=sys.stderr)


def _make_sheets(name: str, which: str, output: Output) -> None:
    from harness.libero.worker import ONE_THREAD

    os.environ.update(ONE_THREAD)  # MuJoCo, Mesa and NumPy are not loaded yet
    from harness.libero.sheets import OUTCOMES, write_sheets

    if which not in OUTCOMES:
        raise BadInput("--sheets", None, which, "the episodes to show", OUTCOMES)
    found = write_sheets(output.store.find(name), which, lambda words: print(f"harness: {words}", file=sys.stderr))
    print(f"contact sheets of episodes: {len(found)}", file=sys.stderr)


def _dossier(name: str, output: Output) -> Dossier:
    """Compares the result again, with the baseline there is now, and gathers what a report needs."""
    from harness.run import Workplace, conclude_dossier

    place = Workplace(output.store, output.baseline_folder, fingerprint(), "")
    return conclude_dossier(output.store.find(name), place)


# --- other programs' files ---------------------------------------------------------------------------------


def export(name: str, format_name: str, target: Path | None, output: Output) -> None:
    """Writes one result in another program's format. Raises BadInput on an unknown format."""
    if format_name not in FORMATS:
        raise BadInput("--format", None, format_name, "a format", FORMATS)
    dossier = _dossier(name, output)
    default = Path(f"{dossier.comparison.suite}-{dossier.comparison.result}-{format_name}")
    for file in FORMATS[format_name](dossier, target or default):
        print(file)


def _to_csv(dossier: Dossier, target: Path) -> list[Path]:
    from harness.report.export.rows import result_rows, write_tables

    return write_tables(result_rows(dossier.comparison, dossier.results), target, "csv")


def _to_parquet(dossier: Dossier, target: Path) -> list[Path]:
    from harness.report.export.rows import result_rows, write_tables

    return write_tables(result_rows(dossier.comparison, dossier.results), target, "parquet")


def _to_junit(dossier: Dossier, target: Path) -> list[Path]:
    from harness.report.ci import junit

    return _one_file(target, ".xml", junit(dossier.comparison))


def _to_pytest_benchmark(dossier: Dossier, target: Path) -> list[Path]:
    from harness.report.export.benchmarks import pytest_benchmark

    return _one_file(target, ".json", json.dumps(pytest_benchmark(dossier.comparison, dossier.results), indent=1))


def _to_github_benchmark(dossier: Dossier, target: Path) -> list[Path]:
    from harness.report.export.benchmarks import github_benchmark

    return _one_file(target, ".json", json.dumps(github_benchmark(dossier.comparison, dossier.results), indent=1))


def _one_file(target: Path, suffix: str, text: str) -> list[Path]:
    file = target if target.suffix == suffix else target.with_name(target.name + suffix)
    write_atomically(file, text.rstrip() + "\n")
    return [file]


def _to_tracker(write: Callable[[list[TrackedRun], Path, str], None], dossier: Dossier, target: Path) -> list[Path]:
    from harness.report.export.trackers import tracked_runs

    write(tracked_runs(dossier.comparison, dossier.results), target, dossier.comparison.suite)
    return [target]


def _to_tensorboard(dossier: Dossier, target: Path) -> list[Path]:
    from harness.report.export.trackers import to_tensorboard

    return _to_tracker(lambda runs, folder, _: to_tensorboard(runs, folder), dossier, target)


def _to_wandb(dossier: Dossier, target: Path) -> list[Path]:
    from harness.report.export.trackers import to_wandb

    return _to_tracker(to_wandb, dossier, target)


def _to_mlflow(dossier: Dossier, target: Path) -> list[Path]:
    from harness.report.export.trackers import to_mlflow

    return _to_tracker(to_mlflow, dossier, target)


FORMATS: dict[str, Callable[[Dossier, Path], list[Path]]] = {
    "csv": _to_csv,
    "parquet": _to_parquet,
    "junit": _to_junit,
    "pytest-benchmark": _to_pytest_benchmark,
    "github-benchmark": _to_github_benchmark,
    "wandb": _to_wandb,
    "mlflow": _to_mlflow,
    "tensorboard": _to_tensorboard,
}


def history(suite: str | None, target: Path, output: Output) -> None:
    """Writes every stored result's runs, verdicts and episodes as one Parquet data set."""
    from harness.history import each_result
    from harness.report.export.rows import write_history

    if suite is not None and not output.store.results(suite):
        raise BadInput("SUITE", None, suite, f"a suite with results in {output.results}", output.store.suites())
    written = write_history(each_result(output.store, suite), target)
    past = written.history
    if output.json:
        counts = {"runs": len(past.runs), "verdicts": len(past.verdicts), "episodes": written.episodes}
        print(json.dumps({"folder": str(target), **counts, "unreadable": past.unreadable}, indent=1))
        return
    for file in written.files:
        print(file)
    for result, why in past.unreadable.items():
        print(f"harness: {result} is left out: {why}", file=sys.stderr)
