"""Where the time of a step goes, as the report shows it: on GPUs with what they alone can tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from comparison_records import a_plan, some_results

from harness.compare.comparison import Comparison, compare
from harness.report.steps import steps_tables
from harness.report.tables import table_text
from harness.report.training import memory_table

PLAN = a_plan()


def on_gpus(**speed: Any) -> Comparison:
    runs = []
    for run in some_results(PLAN).runs:
        assert run.speed is not None and run.memory is not None
        memory = run.memory.model_copy(update={"peak_allocated_bytes": 3 * 2**30, "peak_reserved_bytes": 4 * 2**30})
        runs.append(run.model_copy(update={"speed": run.speed.model_copy(update=speed), "memory": memory}))
    return compare(PLAN, replace(some_results(PLAN), runs=runs), None, [])


def test_shares_and_the_wait_make_the_whole_step() -> None:
    table = steps_tables(compare(PLAN, some_results(PLAN), None, []))["pi0"]
    for row in table.rows:
        shares = [float(row[table.columns.index(name)]) for name in ("Fwd %", "Bwd %", "Update %", "Wait %")]
        assert abs(sum(shares) - 100) < 0.2
    assert "MFU %" not in table.columns and not table.notes


def test_gpus_tell_of_their_peak_and_their_energy() -> None:
    known = on_gpus(mfu=0.41, hfu=0.5, joules_per_sample=12.3, built_steps=[7])
    [row, *_] = steps_tables(known)["pi0"].rows
    assert row[-3:] == ["41.0", "50.0", "12.3"]
    assert "something was compiled in 2 measured steps" in table_text("throughput", known, PLAN)
    assert memory_table(known).columns[2] == "Reserved"
    assert max(len(line) for line in table_text("throughput", known, PLAN).splitlines()) <= 100


def test_what_a_gpu_does_not_tell_is_said() -> None:
    notes = " ".join(steps_tables(on_gpus())["pi0"].notes)
    assert "No MFU" in notes and "No energy" in notes


def test_older_records_have_no_such_table() -> None:
    nothing = dict.fromkeys(("median_forward_seconds", "p99_step_seconds"), None)
    assert steps_tables(on_gpus(**nothing)) == {}


def test_memory_says_whether_its_runs_were_alone() -> None:
    assert "that were alone on the machine" in memory_table(compare(PLAN, some_results(PLAN), None, [])).reading
