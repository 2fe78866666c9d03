from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from comparison_records import a_plan, a_run, some_results

from harness.report.side_by_side import Side, side_by_side
from harness.report.table import WIDTH

PLAN = a_plan()
FIRST = some_results(PLAN, "20260301-100000-abc123")


def slower(factor: float) -> Side:
    runs = []
    for run in FIRST.runs:
        assert run.speed is not None
        faster = run.speed.model_copy(update={"median_step_seconds": run.speed.median_step_seconds * factor})
        runs.append(run.model_copy(update={"speed": faster}))
    return Side(PLAN, replace(FIRST, result_id="20260302-100000-abc123", runs=runs))


def test_a_change_of_every_process_is_shown_in_bold() -> None:
    text = side_by_side(Side(PLAN, FIRST), slower(1.5))
    [row] = re.findall(r"^\| pi0-fsdp2 +\| +step_seconds .*$", text, re.M)
    assert re.search(r"\*\*1\.50× \[1\.\d+–1\.\d+\]\*\*", row)
    assert text.startswith("# 20260302-100000-abc123 against 20260301-100000-abc123\n")
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_result_beside_itself_shows_nothing() -> None:
    text = side_by_side(Side(PLAN, FIRST), Side(PLAN, FIRST))
    assert "**" not in text and "Nothing that the records hold." in text
    assert re.search(r"\| pi0-zero3-seed0 \| +23 \| +17 \| +0 \| +0 \| +6 \|", text)


def test_what_differs_is_named() -> None:
    others = [run for run in FIRST.runs if run.run.cell.label != "pi0-ddp"]
    newer = a_run("fsdp2").fingerprint.model_copy(update={"kernel": "7.0"})
    others[-1] = others[-1].model_copy(update={"fingerprint": newer})
    plan = PLAN.model_copy(update={"runs": [run.run for run in others]})
    text = side_by_side(Side(PLAN, FIRST), Side(plan, replace(FIRST, runs=others)))
    assert "pi0-ddp: only in the first." in text and "kernel 6.8.0 → 7.0." in text


def test_real_results_of_other_sizes(real_results: Path) -> None:
    from harness.reading import read_plan, read_results
    from harness.store import Store

    sides = []
    for folder in Store(real_results).results("fsdp2"):
        plan = read_plan(folder)
        sides.append(Side(plan, read_results(folder, plan)))
    text = side_by_side(*sides)
    assert "0.96× [–]" in text  # one process on one side has no interval
    assert "pi0-ddp: only in the first." in text
