from __future__ import annotations

import pytest
from comparison_records import some_steps

from harness.compare.parity import BAND, BLOCK_STEPS, STRICT_STEPS, loss_parity
from harness.train.records import StepRow


def shifted(rows: list[StepRow], step: int, by: float | None) -> list[StepRow]:
    def loss(row: StepRow) -> float | None:
        return None if by is None or row.loss is None else row.loss + by

    return [row.model_copy(update={"loss": loss(row)}) if row.step == step else row for row in rows]


def test_the_same_curve_agrees() -> None:
    rows = some_steps(200)
    found = loss_parity(rows, rows, "fp32")
    assert (found.holds, found.max_difference, found.max_block_deviation) == (True, 0.0, 0.0)
    assert found.compared_steps == 200 and found.first_departure is None


def test_rounding_and_a_slow_drift_agree() -> None:
    found = loss_parity(some_steps(200), some_steps(200, drift=0.05, rounding=4e-7), "fp32")
    assert found.holds
    assert found.max_block_deviation is not None and 0.01 < found.max_block_deviation < BAND


@pytest.mark.parametrize(
    ("precision", "step", "by", "holds"),
    [
        ("fp32", 0, 9e-6, True),
        ("fp32", 0, 3e-5, False),
        ("fp32", 1, 3e-5, False),
        ("fp32", 2, 3e-5, True),
        ("fp32", 19, 3e-4, False),
        ("bf16", 1, 9e-5, True),
        ("bf16", 1, 3e-4, False),
        ("bf16", 10, 4e-3, True),
        ("bf16", 10, 2.7e-2, False),  # what a forgotten gradient clip does
    ],
)
def test_the_strict_steps(precision: str, step: int, by: float, holds: bool) -> None:
    rows = some_steps(35)
    found = loss_parity(rows, shifted(rows, step, by), precision)
    assert found.holds is holds
    assert found.first_departure == (None if holds else step)
    assert found.max_difference == pytest.approx(by)


def test_tolerance_is_relative_to_large_losses() -> None:
    large = [row.model_copy(update={"loss": 100.0}) for row in some_steps(5)]
    assert loss_parity(large, shifted(large, 0, 5e-4), "fp32").holds
    assert not loss_parity(large, shifted(large, 0, 5e-3), "fp32").holds


def test_tolerance_is_absolute_for_small_losses() -> None:
    small = [row.model_copy(update={"loss": 0.01}) for row in some_steps(5)]
    assert loss_parity(small, shifted(small, 0, 9e-6), "fp32").holds


def test_a_curve_that_leaves_the_band_departs_at_its_block() -> None:
    rows = some_steps(STRICT_STEPS + 3 * BLOCK_STEPS)
    start = STRICT_STEPS + BLOCK_STEPS
    worse = [r.model_copy(update={"loss": (r.loss or 0) * 1.2}) if r.step >= start else r for r in rows]
    found = loss_parity(rows, worse, "fp32")
    assert (found.holds, found.first_departure) == (False, start)
    assert found.max_block_deviation == pytest.approx(0.2)


def test_one_late_spike_is_not_a_departure() -> None:
    rows = some_steps(STRICT_STEPS + BLOCK_STEPS)
    assert loss_parity(rows, shifted(rows, 40, 0.5), "fp32").holds


@pytest.mark.parametrize("step", [0, 10, 60])
def test_a_loss_that_is_not_finite_departs(step: int) -> None:
    rows = some_steps(100)
    found = loss_parity(rows, shifted(rows, step, None), "fp32")
    assert not found.holds
    assert found.first_departure is not None and found.first_departure <= step


def test_curves_of_unequal_length_and_no_curves_do_not_hold() -> None:
    rows = some_steps(30)
    short = loss_parity(rows, rows[:20], "fp32")
    assert not short.holds and "length" in short.reason
    nothing = loss_parity([], [], "fp32")
    assert not nothing.holds and nothing.max_difference is None
