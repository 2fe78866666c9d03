"""`harness compare`, `clean`: commands about results that are there."""

from __future__ import annotations

import json
from pathlib import Path

from harness.commands.output import Output
from harness.errors import BadInput, ExitCode
from harness.machine import fingerprint
from harness.records import Value
from harness.store import Store, folder_bytes, remove_folder

MIB = 2**20
CONFIDENCE = 0.95
"""Of statements on other people's tables; a suite's own is in its `[gate]`."""


def compare_published_tables(name: str | None, as_json: bool) -> None:
    """What every table in `baselines/published` shows by its own counts."""
    from harness.compare.published import compare_published, load_published
    from harness.report.published import spoken

    if name is not None:
        raise BadInput("--published", None, name, "no RESULT beside it: these tables are other people's")
    found = [compare_published(table, CONFIDENCE) for table in load_published()]
    if as_json:
        print(json.dumps([item.model_dump(mode="json") for item in found], indent=1))
    else:
        print("\n".join(spoken(item) for item in found), end="")


def compare_again(name: str | None, output: Output) -> ExitCode:
    from harness.report.terminal import show
    from harness.run import Workplace, conclude

    if name is None:
        raise BadInput("RESULT", None, None, "a result to compare, or --published", output.store.suites())
    result = output.store.find(name)
    place = Workplace(output.store, output.baseline_folder, fingerprint(), "")
    comparison = conclude(result, place)
    if output.json:
        print(comparison.model_dump_json(indent=1))
    else:
        show(comparison, output.console)
    return comparison.exit_code


class Freed(Value):
    """One folder that `harness clean` removed."""

    folder: str
    freed_bytes: int


def clean(results: Path, demonstrations: bool, as_json: bool) -> None:
    store = Store(results)
    folders = [folder for suite in store.suites() for result in store.results(suite) for folder in result.spent()]
    if demonstrations:
        folders += [*store.all_demonstrations(), *store.all_frames()]
    freed = [Freed(folder=str(folder), freed_bytes=remove_folder(folder)) for folder in folders]
    if as_json:
        print(json.dumps([item.model_dump() for item in freed], indent=1))
        return
    for item in freed:
        print(f"{item.freed_bytes / MIB:8.1f} MiB  {item.folder}")
    total = sum(item.freed_bytes for item in freed)
    print(f"{total / MIB:8.1f} MiB freed; {folder_bytes(results) / MIB:.1f} MiB kept in {results}")
