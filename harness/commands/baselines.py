"""`harness baseline …`: what a suite's results are held against."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.commands.output import Output
from harness.errors import BadInput
from harness.machine import fingerprint
from harness.store import BaselineFolder, read_record

if TYPE_CHECKING:
    from harness.compare.baseline import Baseline


@dataclass(frozen=True)
class AcceptRequest:
    """
    Attributes:
        cells: only these, comma-separated.
        bridge: the baseline file that is carried over; None for an ordinary acceptance.
    """

    result: str
    reason: str
    cells: str | None
    extend: bool
    bridge: Path | None


def accept(request: AcceptRequest, output: Output) -> None:
    from harness.compare.baseline import Baseline
    from harness.run import accept_baseline, carry_baseline

    result, folder = output.store.find(request.result), output.baseline_folder
    if request.bridge is not None:
        file, baseline = carry_baseline(result, folder, request.reason, read_record(request.bridge, Baseline))
    else:
        file, baseline = accept_baseline(result, folder, request.reason, _names(request.cells), request.extend)
    if output.json:
        print(json.dumps({"file": str(file), **baseline.model_dump(mode="json")}, indent=1))
    else:
        line = f"{file} is the reference of {baseline.suite} now; commit it"
        output.console.print(line, highlight=False, soft_wrap=True)


def show(suite: str | None, baselines: Path, as_json: bool) -> None:
    from harness.report.baselines import baseline_table

    found = _baselines(suite, baselines)
    if as_json:
        print(json.dumps([baseline.model_dump(mode="json") for baseline in found], indent=1))
        return
    console = Console()
    for baseline in found:
        console.print(baseline_table(baseline))
    if not found:
        console.print(f"no baseline in {baselines}; accept one with `harness baseline accept RESULT --reason …`")


def diff(name: str, extend: bool, output: Output) -> None:
    """What `accept` would do with this result, without doing it."""
    from harness.compare.changes import changes
    from harness.reading import read_plan, read_results
    from harness.report.baselines import changes_table
    from harness.run import read_baseline

    result = output.store.find(name)
    plan = read_plan(result)
    baseline = read_baseline(output.baseline_folder.file(plan.hardware_key, plan.suite))
    found = changes(baseline, plan, read_results(result, plan), extend)
    if output.json:
        print(json.dumps([change.model_dump(mode="json") for change in found], indent=1))
    else:
        output.console.print(changes_table(found))


def expire(suite: str, reason: str, cells: str | None, hardware: str | None, output: Output) -> None:
    from harness.run import expire_baseline

    file = output.baseline_folder.file(hardware or fingerprint().hardware_key, suite)
    if not file.exists():
        known = [f"{found.parent.name}/{found.stem}" for found in output.baseline_folder.files()]
        raise BadInput("SUITE", None, f"{file.parent.name}/{suite}", f"a baseline in {output.baselines}", known)
    baseline = expire_baseline(file, output.baseline_folder, reason, _names(cells))
    if output.json:
        print(json.dumps({"file": str(file), **baseline.model_dump(mode="json")}, indent=1))
    else:
        ended = ", ".join(baseline.history[-1].subjects)
        line = f"{file}: {ended} ended; verdicts on them are STALE until accepted again"
        output.console.print(line, highlight=False, soft_wrap=True)


def history(suite: str | None, baselines: Path, as_json: bool) -> None:
    from harness.report.baselines import history_table

    found = _baselines(suite, baselines)
    if as_json:
        acts = {f"{b.hardware_key}/{b.suite}": [act.model_dump(mode="json") for act in b.history] for b in found}
        print(json.dumps(acts, indent=1))
        return
    console = Console()
    for baseline in found:
        console.print(history_table(baseline))
    if not found:
        console.print(f"no baseline in {baselines}")


def _names(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",")] if text else None


def _baselines(suite: str | None, baselines: Path) -> list[Baseline]:
    from harness.compare.baseline import Baseline

    folder = BaselineFolder(baselines)
    files = [file for file in folder.files() if suite in (None, file.stem)]
    if suite is not None and not files:
        known = {file.stem for file in folder.files()}
        raise BadInput("SUITE", None, suite, f"a suite with a baseline in {baselines}", known)
    return [read_record(file, Baseline) for file in files]
