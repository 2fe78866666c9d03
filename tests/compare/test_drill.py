from __future__ import annotations

import random

import numpy as np
import pytest
from comparison_records import a_plan, a_run, a_speed

from harness.compare.drill import Pool, heavier, judged, resampled_rows, row, slower
from harness.compare.results import Results
from harness.errors import HarnessError
from harness.plan import Plan, Plant, RunKind

KEYS = ("zero3", "fsdp2")
PLAN: Plan = a_plan(repeats=3)


def recorded(nights: int = 8, repeats: int = 3, noise: float = 0.004) -> list[Results]:
    """A/A nights of two cells, whose memory differs by a page or two."""
    rng = np.random.default_rng(5)
    found = []
    for night in range(nights):
        runs = []
        for repeat in range(repeats):
            for key in KEYS:
                run = a_run(key, repeat=repeat)
                assert run.memory is not None
                memory = run.memory.model_copy(
                    update={"peak_resident_bytes": run.memory.peak_resident_bytes + int(rng.integers(0, 9)) * 4096}
                )
                speed = a_speed(0.3 * float(np.exp(rng.normal(0, noise))), run.run)
                runs.append(run.model_copy(update={"speed": speed, "memory": memory}))
        found.append(Results(f"night-{night}", "", runs))
    return found


def test_a_draw_uses_no_run_twice_and_whole_nights() -> None:
    pool = Pool(recorded(), 3, 10)
    night = pool.draw(PLAN, random.Random(1))
    cell = night.baseline.cell("pi0-fsdp2", RunKind.TIMING)
    assert cell is not None
    figures = [*cell.values["step_seconds"]]
    for runs in (night.results.runs, night.results.confirmation_runs):
        mine = [r.speed.median_step_seconds for r in runs if r.speed and r.run.cell.label == "pi0-fsdp2"]
        assert len(mine) == 3
        figures += mine
    assert len(figures) == len(set(figures)) == 16


def test_too_few_recorded_runs_are_refused_with_the_number() -> None:
    with pytest.raises(HarnessError, match="need 16"):
        Pool(recorded(nights=3), 3, 10)


def test_the_promises_are_kept_on_quiet_runs() -> None:
    rows = resampled_rows(Pool(recorded(), 3, 10), PLAN, nights=30, seed=2)
    quiet = rows[0]
    assert (quiet.expected, quiet.nights, quiet.called) == ("quiet", 30, 0)
    slow = [found for found in rows if found.plant.startswith("sleep")]
    assert {found.where for found in slow} == {"pi0-zero3", "pi0-fsdp2"}
    for found in rows[1:]:
        assert found.source == "resampled"
        assert found.share is not None and found.share.estimate >= 0.95, found
    assert {"dropped cell", "doctored baseline"} <= {found.plant for found in rows}


def test_worsened_records_are_worse_in_every_figure_that_follows() -> None:
    run = a_run("fsdp2")
    slow, fat = slower(run, 1.5), heavier(run, 2.0)
    assert run.speed is not None and slow.speed is not None and run.memory is not None and fat.memory is not None
    assert slow.speed.median_step_seconds == pytest.approx(1.5 * run.speed.median_step_seconds)
    assert slow.speed.samples_per_second * slow.speed.median_step_seconds == pytest.approx(
        run.speed.samples_per_second * run.speed.median_step_seconds
    )
    assert fat.memory.peak_resident_bytes == 2 * run.memory.peak_resident_bytes


def test_planted_runs_are_no_pool() -> None:
    found = recorded()
    planted = [
        run.model_copy(update={"run": run.run.model_copy(update={"planted": Plant(kind="sleep", amount=0.2)})})
        for run in found[0].runs
    ]
    with pytest.raises(HarnessError, match="0 recorded"):
        Pool([Results("r", "", planted)], 3, 10)


def test_a_promise_needs_enough_nights() -> None:
    assert row("none", "x", "real", 10, 0, "quiet").holds is None
    assert row("none", "x", "real", 100, 1, "quiet").holds is True
    assert row("none", "x", "real", 10, 1, "quiet").holds is False
    assert row("sleep", "x", "real", 10, 9, "caught").holds is False
    assert row("sleep", "x", "real", 0, 0, "caught").share is None


def test_a_night_is_judged_as_any_other() -> None:
    night = Pool(recorded(), 3, 10).draw(PLAN, random.Random(1))
    assert {j.subject for j in judged(night)} == {"pi0-zero3", "pi0-fsdp2"}
