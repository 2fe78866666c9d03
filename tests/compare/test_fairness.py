from __future__ import annotations

from typing import Any

import pytest
from comparison_records import MACHINE, a_cell, a_failed_run, a_run

from harness.backends.options import Fsdp2Options
from harness.compare.fairness import audit, audit_pairs
from harness.suite import Optimizer
from harness.train.facts import InForce, Workload
from harness.train.records import Outcome, RunRecord

WORKLOAD = {
    "parameters": ("parameters", 1),
    "trainable parameters": ("trainable_parameters", 5_000_000),
    "initial weights": ("initial_weights_sha256", "b2" * 32),
    "data": ("data_sha256", "c3" * 32),
    "hashed batches": ("hashed_batches", 2),
    "episodes left out": ("damaged_episodes", ("episode 3: no images",)),
    "global batch": ("samples_per_step", 32),
    "tokens per sample": ("tokens_per_sample", 121),
    "operations per sample": ("training_flops_per_sample", 7),
    "tokens definition": ("tokens_definition", "text only"),
}
IN_FORCE = {
    "world size": ("world_size", 4),
    "collective backend": ("collective_backend", "nccl"),
    "parameter dtype": ("parameter_dtype", "bfloat16"),
    "autocast dtype": ("autocast_dtype", "bfloat16"),
    "master dtype": ("master_dtype", "bfloat16"),
    "reduce dtype": ("reduce_dtype", "bfloat16"),
    "micro-batch": ("micro_batch", 16),
    "accumulation": ("accumulation", 2),
    "gradient clipping": ("clip", 0.0),
    "activation checkpointing": ("activation_checkpointing", True),
    "optimizer class": ("optimizer_class", "FusedAdam"),
    "optimizer name": ("optimizer", Optimizer(name="sgd")),
    "optimizer lr": ("optimizer", Optimizer(lr=2e-3)),
    "optimizer beta1": ("optimizer", Optimizer(beta1=0.8)),
    "optimizer eps": ("optimizer", Optimizer(eps=1e-4)),
    "optimizer warmup_steps": ("optimizer", Optimizer(warmup_steps=3)),
    "optimizer final_lr_share": ("optimizer", Optimizer(final_lr_share=0.5)),
    "optimizer beta2": ("optimizer", Optimizer(beta2=0.999)),
    "optimizer weight_decay": ("optimizer", Optimizer(weight_decay=0.1)),
    "optimizer schedule": ("optimizer", Optimizer(schedule="cosine")),
}


COMPARED = {"backend", "wrapper", "parameter_class", "zero_stage", "resolved_mode"}
"""What two backends differ in by being two backends."""
OF_TWO_THAT_WRAP = {"sharded_units"}
IMPLIED = {"hardware_flops_per_sample"}
"""What follows from other facts: activation checkpointing."""


def test_no_fact_of_a_run_escapes_the_audit() -> None:
    planted = {field for field, _ in (*WORKLOAD.values(), *IN_FORCE.values())}
    assert planted | COMPARED | OF_TWO_THAT_WRAP | IMPLIED == set(Workload.model_fields) | set(InForce.model_fields)
    assert {name.removeprefix("optimizer ") for name in IN_FORCE if name.startswith("optimizer ")} == {
        "class", *Optimizer.model_fields,
    }  # fmt: skip


def changed(part: str, field: str, value: Any) -> RunRecord:
    run = a_run("fsdp2")
    return run.model_copy(update={part: getattr(run, part).model_copy(update={field: value})})


@pytest.mark.parametrize("key", ["zero2", "fsdp2", "ddp"])
@pytest.mark.parametrize("repeat", [0, 1])
def test_backends_alone_are_no_difference(key: str, repeat: int) -> None:
    assert audit(a_run("zero3", repeat=repeat), a_run(key, repeat=repeat)) == []


@pytest.mark.parametrize("name", WORKLOAD)
def test_every_difference_of_the_workload_is_named(name: str) -> None:
    found = audit(a_run("zero3"), changed("workload", *WORKLOAD[name]))
    assert [(d.name, d.blocking) for d in found] == [(name, True)]
    assert found[0].reference != found[0].candidate and found[0].why


@pytest.mark.parametrize("name", IN_FORCE)
def test_every_difference_of_what_is_in_force_is_named(name: str) -> None:
    found = audit(a_run("zero3"), changed("in_force", *IN_FORCE[name]))
    assert [(d.name, d.blocking) for d in found] == [(name, True)]


def wrapping(units: int, wrap: str = "layers", mode: str = "native") -> RunRecord:
    run = changed("in_force", "sharded_units", units)
    assert run.in_force is not None
    cell = a_cell("fsdp2", backend=Fsdp2Options.model_validate({"wrap": wrap}))
    update = {"run": run.run.model_copy(update={"cell": cell})}
    return run.model_copy(update=update | {"in_force": run.in_force.model_copy(update={"resolved_mode": mode})})


def test_wrapping_blocks_where_the_same_was_asked_for() -> None:
    found = audit(wrapping(5), wrapping(3))
    assert [(d.name, d.blocking, d.reference, d.candidate) for d in found] == [("wrapped units", True, "5", "3")]
    assert [d.blocking for d in audit(wrapping(5), wrapping(1, wrap="root"))] == [False]
    accelerates = audit(wrapping(5, mode="trainer_fsdp1"), wrapping(7, mode="trainer_fsdp2_native"))
    assert [d.blocking for d in accelerates] == [False]
    assert audit(a_run("zero3"), wrapping(3)) == []  # ZeRO wraps nothing


@pytest.mark.parametrize(
    ("package", "blocking"), [("torch", True), ("transformers", True), ("deepspeed", False), ("mujoco", False)]
)
def test_versions_are_named_and_block_only_where_both_sides_stand_on_them(package: str, blocking: bool) -> None:
    machine = MACHINE.model_copy(update={"versions": {**MACHINE.versions, package: "0.0.1"}})
    found = audit(a_run("zero3"), a_run("fsdp2", fingerprint=machine))
    assert [(d.name, d.blocking) for d in found] == [(f"{package} version", blocking)]


def test_a_change_after_the_point_of_a_version_does_not_block() -> None:
    machine = MACHINE.model_copy(update={"versions": {**MACHINE.versions, "torch": "2.13.1"}})
    assert [d.blocking for d in audit(a_run("zero3"), a_run("fsdp2", fingerprint=machine))] == [False]


def test_seed_hardware_and_length_of_run_are_named() -> None:
    plain, run = a_run("zero3"), a_run("fsdp2")
    other = MACHINE.model_copy(update={"hardware_key": "cpu-other"})
    longer = run.run.model_copy(update={"steps": 70})
    assert [d.name for d in audit(plain, a_run("fsdp2", seed=8))] == ["seed"]
    assert [d.name for d in audit(plain, a_run("fsdp2", fingerprint=other))] == ["hardware"]
    assert [d.name for d in audit(plain, a_run("fsdp2", run=longer))] == ["steps"]


def test_another_layout_is_named_and_does_not_block() -> None:
    run = a_run("fsdp2").run
    raw = run.model_copy(update={"cell": run.cell.model_copy(update={"layout": "raw"})})
    found = audit(a_run("zero3"), a_run("fsdp2", run=raw))
    assert [(d.name, d.blocking) for d in found] == [("layout", False)]


def test_a_run_without_facts_is_not_alike() -> None:
    assert [d.name for d in audit(a_run("zero3"), a_failed_run("fsdp2", Outcome.OOM))] == ["facts"]


def test_an_audit_of_nothing_is_not_fair() -> None:
    assert not audit_pairs("a", "b", []).fair
    assert audit_pairs("a", "b", [(a_run("zero3"), a_run("fsdp2"))]).fair


def test_a_difference_seen_in_many_pairs_is_told_once() -> None:
    pairs = [(a_run("zero3", repeat=r), changed("in_force", "clip", 0.0)) for r in (0, 1)]
    found = audit_pairs("pi0-zero3", "pi0-fsdp2", pairs)
    assert [d.name for d in found.differences] == ["gradient clipping"]
    assert not found.fair
