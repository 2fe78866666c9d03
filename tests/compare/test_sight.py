from __future__ import annotations

import numpy as np
import pytest
from comparison_records import a_plan, a_run, a_speed

from harness.compare.baseline import Acceptance, Baseline, accept
from harness.compare.results import Results
from harness.compare.sight import refuse_blind_gate
from harness.errors import BadInput
from harness.suite import Gate, SmallestEffect


def baseline(noise: float, count: int) -> Baseline:
    rng = np.random.default_rng(3)
    runs = [a_run("zero3", repeat=repeat) for repeat in range(count)]
    noisy = [r.model_copy(update={"speed": a_speed(0.3 * float(np.exp(rng.normal(0, noise))), r.run)}) for r in runs]
    act = Acceptance(result="r", at="2026-02-01T00:00:00+00:00", by="x", reason="y", command="z")
    return accept(a_plan(), Results("r", "", noisy), None, act)


def test_a_quiet_baseline_is_sharp_enough() -> None:
    refuse_blind_gate(a_plan(repeats=10), baseline(0.001, 10))
    refuse_blind_gate(a_plan(repeats=1), None)


def test_a_noisy_one_is_refused_with_the_number_that_would_do() -> None:
    with pytest.raises(BadInput, match=r"throughput.repeats = 3: expected at least \d+, here and in the baseline") as e:
        refuse_blind_gate(a_plan(repeats=3), baseline(0.02, 10))
    needed = int(str(e.value).split("at least ")[1].split(",")[0])
    assert needed > 10
    with pytest.raises(BadInput):
        refuse_blind_gate(a_plan(repeats=needed // 3), baseline(0.02, needed // 3))


def test_a_larger_effect_that_matters_needs_fewer() -> None:
    coarse = Gate(smallest_effect=SmallestEffect(step_seconds=0.5))
    refuse_blind_gate(a_plan(repeats=3, gate=coarse), baseline(0.02, 10))


def test_one_accepted_process_can_never_speak() -> None:
    with pytest.raises(BadInput, match="two accepted processes"):
        refuse_blind_gate(a_plan(repeats=3), baseline(0.001, 1))
