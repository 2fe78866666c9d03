"""`harness validate`: what each check passes and refuses, how a validation goes on, and one real trial of each kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cli import app
from harness.errors import BadInput
from harness.machine import Fingerprint
from harness.plan import Cell, Plan, PlannedRun, RunKind
from harness.store import Store, read_record, write_record
from harness.suite import Data
from harness.train.facts import InForce, ShardBytes, Workload
from harness.train.records import COMPLETE, Failure, Memory, Outcome, RunRecord, StepRow
from harness.validate import checks
from harness.validate.campaign import Pace, carry_out, open_result, read_trials
from harness.validate.records import CHECKS, Answer, Row, Trial, Validation
from harness.validate.request import CHECKPOINT_STEP, STEPS, ValidationRequest, planned

MACHINE = Fingerprint(
    hardware_key="cpu-test",
    hostname="test",
    cpu="test",
    cores=2,
    memory_bytes=1,
    gpus=[],
    kernel="test",
    python="3.11",
    versions={"torch": "2.13.0"},
)
LOSSES = [1.0 - 0.05 * step for step in range(STEPS)]


def a_cell(backend: str = "fsdp2", stack: str = "native") -> Cell:
    return Cell(
        label=f"pi0-{backend}", model="pi0", size="tiny", stack=stack, backend={"backend": backend}, data=Data()
    )


def a_record(cell: Cell | None = None, outcome: Outcome = Outcome.OK, **force: object) -> RunRecord:
    cell = cell or a_cell()
    sharded = cell.backend.backend == "fsdp2"
    built = {
        "backend": cell.backend.backend,
        "resolved_mode": "native",
        "wrapper": "FSDPPi0",
        "parameter_class": "DTensor" if sharded else "Parameter",
        "sharded_units": 3 if sharded else 0,
        "zero_stage": None,
        "world_size": 2,
        "collective_backend": "gloo",
        "parameter_dtype": "float32",
        "master_dtype": "float32",
        "reduce_dtype": "float32",
        "micro_batch": 2,
        "accumulation": 2,
        "clip": 1.0,
        "activation_checkpointing": False,
        "optimizer_class": "AdamW",
        "optimizer": cell.optimizer,
    }
    held = 4_000 // (2 if sharded else 1)
    return RunRecord(
        run=PlannedRun(cell=cell, kind=RunKind.LEARNING, repeat=0, training_seed=0, steps=STEPS),
        attempt=1,
        seed=0,
        outcome=outcome,
        failure=None
        if outcome is Outcome.OK
        else Failure(reason="ValueError: no", rank=0, exit_code=1, traceback=None),
        started_at="2026-11-30T00:00:00+00:00",
        wall_seconds=1.0,
        fingerprint=MACHINE,
        workload=Workload(
            parameters=1000,
            trainable_parameters=1000,
            initial_weights_sha256="a",
            data_sha256="b",
            hashed_batches=4,
            samples_per_step=8,
            tokens_per_sample=1,
            tokens_definition="one",
        ),
        in_force=InForce(**(built | force)),
        speed=None,
        memory=Memory(
            peak_resident_bytes=1,
            peak_allocated_bytes=None,
            peak_reserved_bytes=None,
            shards=[ShardBytes(parameter_bytes=held, gradient_bytes=0, optimizer_bytes=0)] * 2,
        ),
        final_loss=0.5,
        checkpoint_save_seconds=None,
        checkpoint_load_seconds=None,
        checkpoint_bytes=None,
        export=None,
    )


def rows(losses: list[float] = LOSSES, resumed: int = 0) -> list[StepRow]:
    return [
        StepRow(
            step=step,
            step_seconds=0.1,
            data_seconds=0.0,
            loss=loss,
            gradient_norm=1.0,
            learning_rate=1e-3,
            samples=8,
            tokens=8,
            resumed=step < resumed,
        )
        for step, loss in enumerate(losses)
    ]


def test_a_run_that_is_what_was_asked_trains() -> None:
    answer = checks.training(a_record())
    assert answer.outcome == "ok"
    assert answer.detail.startswith("native: FSDPPi0, DTensor, 3 units")


@pytest.mark.parametrize(
    ("force", "reason"),
    [
        ({"resolved_mode": "trainer_ddp"}, "resolved_mode is trainer_ddp, not native"),
        ({"parameter_class": "Parameter"}, "parameter class is Parameter, not DTensor"),
        ({"world_size": 1}, "ranks is 1, not 2"),
        ({"backend": "ddp"}, "backend is ddp, not fsdp2"),
    ],
)
def test_an_impostor_is_named(force: dict[str, object], reason: str) -> None:
    assert checks.training(a_record(**force)) == checks.failed(reason)


def test_a_run_that_does_not_shard_and_one_that_crashed_do_not_train() -> None:
    whole = a_record().model_copy(update={"memory": a_record(a_cell("ddp")).memory})
    assert "this cell does not shard" in checks.training(whole).detail
    assert checks.training(a_record(outcome=Outcome.CRASHED)) == checks.failed("CRASHED: ValueError: no")


def test_parity_is_of_losses_norms_and_workload() -> None:
    reference, record = a_record(a_cell("ddp")), a_record()
    off = [loss + 2e-5 * (step == 7) for step, loss in enumerate(LOSSES)]
    louder = [row.model_copy(update={"gradient_norm": 1.1}) for row in rows()]
    other = reference.model_copy(
        update={"workload": reference.workload.model_copy(update={"initial_weights_sha256": "c"})}
    )
    assert checks.parity(record, rows(), reference, rows()).outcome == "ok"
    assert "by up to 2.0e-05" in checks.parity(record, rows(off), reference, rows()).detail
    assert checks.parity(record, louder, reference, rows()).outcome == "FAILED"
    assert "other initial weights" in checks.parity(record, rows(), other, rows()).detail
    ended = a_record(a_cell("ddp"), outcome=Outcome.CRASHED)
    assert checks.parity(record, rows(), ended, []).outcome == "not reached"


def test_a_checkpoint_is_complete_and_holds_what_its_backend_writes(tmp_path) -> None:
    folder = tmp_path / "checkpoint" / "step-4"
    inner = folder / "checkpoint-4"
    inner.mkdir(parents=True)
    (inner / "model.safetensors").write_bytes(b"weights")
    trainer = a_cell("fsdp2", "trainer")
    assert "was cut off" in checks.checkpoint(tmp_path, trainer, 4).detail
    (folder / COMPLETE).write_text("{}")
    assert "no checkpoint-*/pytorch_model_fsdp*" in checks.checkpoint(tmp_path, trainer, 4).detail
    (inner / "pytorch_model_fsdp.bin").write_bytes(b"weights")
    (inner / "optimizer.bin").write_bytes(b"moments")
    answer = checks.checkpoint(tmp_path, trainer, 4)
    assert answer.outcome == "ok"
    assert answer.detail.startswith("pytorch_model_fsdp.bin, optimizer.bin")


def test_a_resume_is_exact_and_ends_with_the_same_file(tmp_path) -> None:
    first, second = tmp_path / "resumed", tmp_path / "whole"
    for attempt in (first, second):
        (attempt / "export").mkdir(parents=True)
        checks.weights(attempt).write_bytes(b"weights")
    middle = CHECKPOINT_STEP
    last_bit = [loss + 1e-9 * (step == 6) for step, loss in enumerate(LOSSES)]

    def answered(losses: list[float], resumed: int = middle) -> Answer:
        return checks.resume(a_record(), rows(losses, resumed), rows(), (first, second), middle)

    assert answered(LOSSES).outcome == "ok"
    assert "differ by up to 1.0e-09" in answered(last_bit).detail
    assert "did not go on from step 4" in answered(LOSSES, resumed=0).detail
    checks.weights(first).write_bytes(b"others")
    assert "other weights" in answered(LOSSES).detail


class StubTrials:
    """Says ok to everything, and is interrupted when told."""

    def __init__(self, interrupt_at: str = "") -> None:
        self.made: list[str] = []
        self.cleared: list[str] = []
        self.interrupt_at = interrupt_at

    def launch_together(self, runs: Sequence[PlannedRun]) -> None:
        assert len({(run.cell.backend.digest(), run.cell.stack) for run in runs}) <= 1

    def bound(self, result) -> StubTrials:
        self.result = result
        return self

    def make(self, row: Row, run: PlannedRun, reference: PlannedRun) -> Trial:
        assert reference.cell.label == f"{row.model}-ddp_native"
        if row.label == self.interrupt_at:
            raise KeyboardInterrupt
        self.made.append(row.label)
        trial = Trial(row=row, run=run, answers=dict.fromkeys(CHECKS, checks.passed("")))
        write_record(self.result.trial_file(row.label), trial)
        return trial

    def clear(self, run: PlannedRun, exports: bool) -> None:
        assert exports
        self.cleared.append(run.cell.label)


def a_validation(ranks: int = 2, **changes: object) -> tuple[Validation, Plan]:
    asked = {"models": ["pi0", "cogact"], "size": "tiny", "backends": ["fsdp", "fsdp2"], "stacks": ["native"]}
    return planned(ValidationRequest(**(asked | changes), ranks=ranks), MACHINE)


def test_every_row_has_its_run_and_every_model_its_reference() -> None:
    validation, plan = a_validation()
    assert [row.label for row in validation.rows] == [
        f"{model}-{backend}_native" for model in ("pi0", "cogact") for backend in ("fsdp", "fsdp2")
    ]
    labels = {run.cell.label for run in plan.runs}
    assert labels == {row.label for row in validation.rows} | {"pi0-ddp_native", "cogact-ddp_native"}
    assert {(run.steps, run.checkpoint_every) for run in plan.runs} == {(STEPS, CHECKPOINT_STEP)}


def test_a_name_that_is_not_there_is_one_error() -> None:
    with pytest.raises(BadInput, match='did you mean "fsdp2"'):
        a_validation(backends=["fsd2"])
    with pytest.raises(BadInput, match='did you mean "trainer"'):
        a_validation(stacks=["trainr"])


def test_after_an_interruption_the_same_command_goes_on(tmp_path) -> None:
    validation, plan = a_validation()
    store = Store(tmp_path)
    first = StubTrials(interrupt_at="cogact-fsdp_native")
    result = open_result(validation, plan, store, "harness validate")
    with pytest.raises(KeyboardInterrupt):
        list(carry_out(validation, plan, result, first.bound(result), lambda *_: None))
    assert not first.cleared
    again = open_result(validation, plan, store, "harness validate")
    assert again.path == result.path
    second = StubTrials()
    list(carry_out(validation, plan, again, second.bound(again), lambda *_: None))
    assert first.made == ["pi0-fsdp_native"]
    assert second.made == ["cogact-fsdp_native", "pi0-fsdp2_native", "cogact-fsdp2_native"]
    assert set(second.cleared) == {run.cell.label for run in plan.runs}
    assert [trial.row for trial in read_trials(validation, again)] == validation.rows


def test_what_cannot_run_is_a_row_with_its_reason_and_takes_no_time(tmp_path) -> None:
    validation, plan = a_validation(ranks=1)
    result = open_result(validation, plan, Store(tmp_path), "harness validate")
    trials = StubTrials()
    made = list(carry_out(validation, plan, result, trials.bound(result), lambda *_: None))
    assert [trial.row.backend for trial in made] == ["fsdp", "fsdp", "fsdp2", "fsdp2"]
    outcomes = {trial.row.backend: trial.answers["trains"].outcome for trial in made}
    assert outcomes == {"fsdp": "UNSUPPORTED", "fsdp2": "ok"}
    assert "NO_SHARD" in made[0].answers["trains"].detail
    now = 0.0
    pace = Pace(plan, clock=lambda: now)
    now = 30.0
    pace.record(made[0])
    pace.record(made[2])
    assert pace.seconds_left(validation.rows) == 2 * 30.0  # of four rows two can run


def test_one_model_for_real(tmp_path) -> None:
    answer = CliRunner().invoke(app, ["validate", "pi0", "--size", "tiny", "--results", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    [file] = tmp_path.glob("validate/*/validate/pi0-fsdp2_native.json")
    trial = read_record(file, Trial)
    assert {answer.outcome for answer in trial.answers.values()} == {"ok"}
    assert trial.resolved_mode == "native"
    assert trial.loss_gap < 1e-5
    assert trial.resume_gap == 0.0
    assert ".metadata, __0_0.distcp and 1 more" in answer.output
    assert not list(tmp_path.glob("validate/*/train/*/*/*/checkpoint"))


BROKEN = """
import torch
from torch import nn

from harness.models import build as built_in


def build(size):
    model = built_in("pi0", size)
    model.forgotten = nn.Linear(4, 4)
    return model
"""


@pytest.mark.full
def test_a_broken_model_is_reported(tmp_path, monkeypatch) -> None:
    """A layer that nothing calls: DDP waits for its gradient in vain."""
    (tmp_path / "broken_models.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = ["validate", "broken_models:build", "--backend", "ddp", "--size", "tiny", "--results", str(tmp_path)]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 12, answer.output
    assert "forgotten" in answer.output
    assert "change:" in answer.output
    assert re.search(r"trains +FAILED +CRASHED: rank [01]: RuntimeError", answer.output), answer.output


def test_all_and_a_model_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--all takes all of them"):
        CliRunner().invoke(app, ["validate", "pi0", "--all", "--results", str(tmp_path)], catch_exceptions=False)
    with pytest.raises(BadInput, match="one or more, or --all"):
        CliRunner().invoke(app, ["validate", "--results", str(tmp_path)], catch_exceptions=False)
