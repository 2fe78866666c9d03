"""A loss that is no number, and one that has exploded, end the run with their step kept; a merely bad one does not."""

from __future__ import annotations

import math
from pathlib import Path

import native_runs as native
import pytest
import torch
from torch import Tensor

from harness.train.journal import Journal, read_rows, steps_file
from harness.train.loop import EXPLOSION, DivergedError, Steps, exploded
from harness.train.phases import PhaseSeconds
from harness.train.step_watch import StepLap
from harness.train.world import World

LAP = StepLap(1.0, 0.5, PhaseSeconds(0.3, 0.6, 0.1), None, compiled=False)


class AloneWorld(World):
    def mean(self, value: Tensor) -> float:
        return float(value)


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    order, world = native.spec(tmp_path, native.cell("ddp", ranks=1)), AloneWorld(0, 1, torch.device("cpu"))
    return Steps(order.run, None, world, Journal(tmp_path, 0), 1, checkpoint=lambda step: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loss", "norm", "why"),
    [
        (math.nan, 1.0, "step 1: loss nan, gradient norm 1.0"),
        (2.0, math.inf, "step 1: loss 2.0, gradient norm inf"),
        (2.1 * EXPLOSION, 1.0, "step 1: loss 2.1e\\+03, from 2 at the first step"),
    ],
)
def test_what_no_training_comes_back_from(steps: Steps, tmp_path: Path, loss: float, norm: float, why: str) -> None:
    steps.finish(0, torch.tensor(2.0), 1.0, LAP, 0.1)
    with pytest.raises(DivergedError, match=why):
        steps.finish(1, torch.tensor(loss), norm, LAP, 0.1)
    rows = read_rows(steps_file(tmp_path, 0))
    assert [row.step for row in rows] == [0, 1]
    assert (rows[0].forward_seconds, rows[0].built, rows[1].built) == (0.3, True, False)


def test_a_bad_loss_is_no_explosion(steps: Steps) -> None:
    for step, loss in enumerate((0.01, 5.0, 900.0)):
        steps.finish(step, torch.tensor(loss), 1.0, LAP, 0.1)
    assert exploded(1001.0, 0.01) and not exploded(1e4, 50.0)
