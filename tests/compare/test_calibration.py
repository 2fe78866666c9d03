from __future__ import annotations

import numpy as np
import pytest
from comparison_records import a_run, a_speed

from harness.compare.calibration import EFFECTS, calibrate
from harness.compare.results import Results
from harness.plan import Plant
from harness.report.drills import calibration_table


def nights(count: int, repeats: int, within: float, between: float, seed: int = 0) -> list[Results]:
    rng = np.random.default_rng(seed)
    found = []
    for night in range(count):
        shift = rng.normal(0, between)
        runs = [a_run("fsdp2", repeat=repeat) for repeat in range(repeats)]
        runs = [
            r.model_copy(update={"speed": a_speed(0.3 * float(np.exp(shift + rng.normal(0, within))), r.run)})
            for r in runs
        ]
        found.append(Results(f"night-{night}", "", runs))
    return found


def test_noise_within_and_between_nights_is_told_apart() -> None:
    found = calibrate("s", "m", 0.001, nights(60, 5, within=0.01, between=0.02))
    [step] = [noise for noise in found.noise if noise.metric == "step_seconds"]
    assert step.within is not None and step.within.log_sd == pytest.approx(0.01, rel=0.15)
    assert step.between_sd == pytest.approx(0.02, rel=0.3)
    assert step.log_sd == pytest.approx(float(np.hypot(step.within.log_sd, step.between_sd or 0)))
    assert found.run_noise == pytest.approx(np.sqrt(2) * step.log_sd)
    assert (step.processes, step.results) == (300, 60)


def test_smaller_effects_need_more() -> None:
    found = calibrate("s", "m", 0.001, nights(1, 10, within=0.01, between=0.0))
    [step] = [noise for noise in found.noise if noise.metric == "step_seconds"]
    counts = [needed.processes or 10**6 for needed in step.needed]
    assert counts == sorted(counts, reverse=True)
    assert [needed.effect for needed in step.needed] == list(EFFECTS)
    assert step.between_sd is None
    assert "run_noise" in calibration_table(found).text()


def test_one_run_has_no_noise_and_needs_an_unknown_number() -> None:
    found = calibrate("s", "m", 0.001, nights(1, 1, within=0.01, between=0.0))
    assert all(noise.log_sd is None for noise in found.noise)
    assert all(needed.processes is None for noise in found.noise for needed in noise.needed)
    assert found.run_noise is None
    assert calibration_table(found).text()


def test_planted_runs_say_nothing_of_the_machine() -> None:
    clean, [other] = nights(2, 5, 0.01, 0.0), nights(1, 5, 0.01, 0.0, seed=1)
    slow = [r.model_copy(update={"run": r.run.model_copy(update={"planted": Plant(kind="sleep", amount=1)})})
            for r in other.runs]  # fmt: skip
    assert calibrate("s", "m", 0.001, [*clean, Results("x", "", slow)]) == calibrate("s", "m", 0.001, clean)
