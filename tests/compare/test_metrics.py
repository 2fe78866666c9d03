from __future__ import annotations

import subprocess
import sys

import pytest
from comparison_records import a_failed_run, a_run

from harness.compare.metrics import METRICS, read, smallest_effect
from harness.plan import RunKind
from harness.suite import Gate, SmallestEffect
from harness.train.records import Outcome


def test_figures_are_read_from_the_record_that_owns_them() -> None:
    timing, learning = a_run("zero3"), a_run("zero3", RunKind.LEARNING)
    assert timing.speed is not None and timing.memory is not None
    assert read(METRICS["step_seconds"], [timing]) == [timing.speed.median_step_seconds]
    assert read(METRICS["peak_resident_bytes"], [timing]) == [timing.memory.peak_resident_bytes]
    assert read(METRICS["parameter_bytes"], [timing]) == [12_000_000]
    assert read(METRICS["state_bytes"], [timing]) == [12_000_000 + 12_000_000 + 24_000_000]
    assert read(METRICS["checkpoint_bytes"], [learning]) == [72_000_000]


def test_what_a_run_does_not_have_is_left_out() -> None:
    assert read(METRICS["peak_allocated_bytes"], [a_run("zero3")]) == []
    assert read(METRICS["checkpoint_save_seconds"], [a_run("zero3")]) == []
    failed = a_failed_run("zero3", Outcome.OOM)
    assert all(read(metric, [failed]) == [] for metric in METRICS.values())


@pytest.mark.parametrize(
    ("metric", "effect"), [("step_seconds", 0.07), ("peak_resident_bytes", 0.02), ("checkpoint_save_seconds", 0.15)]
)
def test_a_suite_may_say_what_matters(metric: str, effect: float) -> None:
    gate = Gate(smallest_effect=SmallestEffect(step_seconds=0.07, peak_bytes=0.02))
    assert smallest_effect(METRICS[metric], gate) == effect


def test_comparing_and_reporting_load_nothing_heavy_until_asked() -> None:
    heavy = "[m for m in ('scipy', 'statsmodels', 'pandas', 'torch', 'numpy') if m in sys.modules]"
    code = f"import sys, harness.compare.comparison, harness.report.markdown, harness.report.terminal; print({heavy})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
