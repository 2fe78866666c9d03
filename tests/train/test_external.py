"""Somebody's own script under our torchrun: run, timed and read without a change in it."""

from __future__ import annotations

from pathlib import Path

import native_runs as native
import pytest

from harness.plan import Cell
from harness.train.ending import read_steps
from harness.train.records import Outcome, RunRecord

SCRIPT = str(Path(__file__).parent / "external_script.py")
STEPS = 6
"""The script would make twice as many."""

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def cell(backend: str, *arguments: str) -> Cell:
    return native.cell(backend, stack="external", entry=[SCRIPT, "--task", "train", *arguments])


def run(folder: Path, chosen: Cell) -> RunRecord:
    return native.run(native.spec(folder, chosen, steps=STEPS))


@pytest.mark.parametrize("backend", ["ddp", "fsdp2"])
def test_a_script_is_measured_as_it_is(backend, tmp_path):
    record = run(tmp_path, cell(backend))
    assert record.outcome is Outcome.OK, record.failure
    force = record.in_force
    assert force.resolved_mode == {"ddp": "trainer_ddp", "fsdp2": "trainer_fsdp2_native"}[backend]
    assert force.parameter_class == ("DTensor" if backend == "fsdp2" else "Parameter")
    assert (force.world_size, force.micro_batch, force.accumulation, force.clip) == (2, 4, 2, 1.0)
    rows = read_steps(tmp_path)
    assert [row.step for row in rows] == list(range(STEPS))
    assert {row.samples for row in rows} == {16}
    assert rows[-1].loss < rows[0].loss
    assert all(row.gradient_norm > 0 and row.step_seconds > 0 for row in rows)
    assert [row.learning_rate for row in rows] == pytest.approx([1e-2 * (1 - step / 12) for step in range(STEPS)])
    assert record.speed.measured_steps == STEPS - 2
    assert record.workload.parameters == 4 * 16 + 16 + 16 * 16 + 16 + 16 * 2 + 2
    assert record.export is None


def test_a_log_that_names_another_mode_is_not_believed(tmp_path):
    record = run(tmp_path, cell("ddp", "--lie"))
    assert record.outcome is Outcome.CRASHED
    assert "resolved_mode=accelerate_fsdp2_plugin, but it built trainer_ddp" in record.failure.reason


def test_a_missing_script_is_said(tmp_path):
    record = run(tmp_path, native.cell("ddp", stack="external", entry=["no/such.py"]))
    assert record.outcome is Outcome.CRASHED
    assert "no/such.py" in record.failure.reason
