"""The report against stored ones. After a wanted change: UPDATE_GOLDEN=1 pytest tests/report, then read the diff."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from comparison_records import a_failed_run, a_plan, an_episode, some_results

from harness.compare.baseline import Acceptance, accept
from harness.compare.comparison import compare
from harness.compare.published import load_published
from harness.compare.results import Results
from harness.plan import Plan, Plant, Unsupported
from harness.report.evaluation import rates_table
from harness.report.markdown import render
from harness.report.table import WIDTH
from harness.train.records import HostConditions, Outcome

GOLDEN = Path(__file__).parent / "golden"
PLAN = a_plan(unsupported=[Unsupported(label="pi0-fsdp", reason="one-process sharding needs CUDA")])


def whole() -> str:
    results = some_results(PLAN)
    return render(compare(PLAN, results, None, load_published()), PLAN, results)


def troubled() -> str:
    """A baseline, a cell out of memory, another that was not clipped, an arm with errors, and a run that slowed."""
    good = some_results(PLAN, "20260201-100000-abc123")
    by = Acceptance(
        result=good.result_id, at="2026-02-01T12:00:00+00:00", by="someone", reason="first", command=good.command
    )
    runs = []
    for run in good.runs:
        assert run.in_force is not None and run.speed is not None
        if run.run.key == "pi0-ddp/timing-1":
            runs.append(a_failed_run("ddp", Outcome.OOM, 1))
        elif "zero2" in run.run.key:
            runs.append(run.model_copy(update={"in_force": run.in_force.model_copy(update={"clip": 0.0})}))
        elif run.run.key.startswith("pi0-fsdp2/timing"):
            runs.append(run.model_copy(update={"speed": run.speed.model_copy(update={"steadiness": "SLOWING"})}))
        else:
            runs.append(run)
    episodes = [
        an_episode(e.arm, e.key, "error", reason="the simulator died") if e.arm == "pi0-fsdp2-seed0" and i % 4 else e
        for i, e in enumerate(good.episodes)
    ]
    results = replace(good, result_id="20260301-100000-def456", runs=runs, episodes=episodes)
    comparison = compare(PLAN, results, accept(PLAN, good, None, by), [])
    return render(comparison, PLAN, results)


def test_a_planted_fault_is_told() -> None:
    plant = Plant(kind="sleep", amount=0.2)
    runs = [r.model_copy(update={"planted": plant}) if r.cell.label == "pi0-fsdp2" else r for r in PLAN.runs]
    plan = PLAN.model_copy(update={"runs": runs})
    text = render(compare(plan, some_results(PLAN), None, []), plan, some_results(PLAN))
    assert "A fault was planted in pi0-fsdp2 (sleep 0.2)" in " ".join(text.split())


@pytest.mark.parametrize("make", [whole, troubled])
def test_the_report_is_the_stored_one(make: object) -> None:
    file = GOLDEN / f"{make.__name__}.md"  # type: ignore[attr-defined]
    text = make()  # type: ignore[operator]
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("make", [whole, troubled])
def test_no_table_is_wider_than_the_page_and_each_says_how_to_read_it(make: object) -> None:
    lines = make().splitlines()  # type: ignore[operator]
    assert max(len(line) for line in lines if line.startswith("|")) <= WIDTH
    ends = [i for i, line in enumerate(lines) if line.startswith("|") and not lines[i + 1].startswith("|")]
    assert len(ends) >= 6
    assert all(lines[i + 1] == "" and re.match(r"[A-Za-z]", lines[i + 2]) for i in ends)


def test_answers_come_first() -> None:
    headings = [line for line in whole().splitlines() if line.startswith("## ")]
    assert headings[0] == "## Verdicts"
    assert headings[-3:] == ["## Command", "## Configuration", "## Machine"]


def test_the_dexbotic_columns_are_there() -> None:
    assert re.search(r"\| Model +\| Libero-Spatial \| Libero-Object \| Libero-Goal \| Libero-10 \| Average \|", whole())


def test_task_suites_that_nobody_asked_for_have_no_column() -> None:
    plan = a_plan()
    only = [key for key in plan.episodes if key.task_suite in ("libero_object", "libero_10")]
    asked = plan.model_copy(update={"episodes": only})
    results = some_results(asked)
    played = [e for e in results.episodes if e.key.task_suite == "libero_object"]
    table = rates_table(compare(asked, replace(results, episodes=played), None, []), asked)
    assert table.columns == ["Model", "Libero-Object", "Libero-10"], "what was planned and not played keeps its column"
    assert "Average" not in table.text()
    assert table.rows[0][2] == "–"


def test_trouble_is_told_in_its_own_words() -> None:
    text = troubled()
    assert "MemoryError: 3 GiB" in text and "frame 19" in text and "frame 11" not in text
    assert "gradient clipping 1.0 → 0.0" in text
    assert "`UNSTEADY` Speed, pi0: fsdp2 vs zero3" in text
    assert "ended in errors" in text


def test_what_is_missing_is_a_dash_and_never_zero() -> None:
    results = some_results(PLAN)
    none = [
        a_failed_run("ddp", Outcome.OOM, r.run.repeat) if r.run.cell.label == "pi0-ddp" else r for r in results.runs
    ]
    text = render(compare(PLAN, replace(results, runs=none), None, []), PLAN, replace(results, runs=none))
    [speed, within, memory] = re.findall(r"^\| (?:pi0-)?ddp +\|.*$", text, re.M)
    assert not re.search(r"\b0(\.0+)?\b(?!/)", speed.replace("0/2", "")) and speed.count("–") == 5
    assert (within.count("–"), memory.count("–")) == (9, 7)
    assert "pi0-ddp has no figures: OOM: a rank was killed for memory." in text


def test_disturbances_and_what_was_measured_again_are_told() -> None:
    busy = HostConditions(
        load_average=3.0, foreign_cpu_share=0.4, cpu_mhz=None, temperature_celsius=None, foreign_gpu_processes=None
    )
    results = some_results(PLAN)
    first, *others = results.runs
    results = replace(results, runs=[first.model_copy(update={"host": busy}), *others], set_aside=[first])
    text = " ".join(render(compare(PLAN, results, None, []), PLAN, results).split())
    assert "pi0-zero3/timing-0 was disturbed: other processes took 40% of the CPU." in text
    assert "kept and in no figure: 1 of pi0-zero3." in text
    assert "disturbed" not in whole()


def test_nothing_at_all_is_reported_too() -> None:
    empty = Plan(
        suite="none", purpose="bench", seed=0, hardware_key="x", runs=[], unsupported=[], reference=None, arms=[],
        episodes=[], evaluation=None, gate=PLAN.gate,
    )  # fmt: skip
    results = Results("r", "", [])
    text = render(compare(empty, results, None, []), empty, results)
    assert "Exit code 11" in text and "No record was made yet." in text


def test_the_way_to_a_first_baseline_is_told() -> None:
    assert 'harness baseline accept 20260301-100000-abc123 --reason "why"' in whole()


def test_damaged_demonstrations_that_were_left_out_are_named_once() -> None:
    results = some_results(PLAN)
    told = ("episode1.jsonl: frame 3: not a readable image",)
    runs = [
        run.model_copy(update={"workload": run.workload and run.workload.model_copy(update={"damaged_episodes": told})})
        for run in results.runs
    ]
    text = render(compare(PLAN, results, None, []), PLAN, replace(results, runs=runs))
    assert text.count("## Left out") == 1 and text.count(told[0]) == 1
    assert "1 damaged episodes (`skip_damaged`)" in text
    assert "## Left out" not in whole()
