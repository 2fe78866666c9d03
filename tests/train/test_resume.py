"""Resuming in fresh processes: as if nothing had happened, on the same number of ranks and on another."""

from __future__ import annotations

import shutil

import native_runs as native
import pytest
import torch
import torch.distributed as dist
from stack_runs import backend_cell, together

from harness.backends import build_engine
from harness.models import build
from harness.plan import Cell, RunKind
from harness.train.journal import latest_checkpoint
from harness.train.records import Outcome

TORCH = ("ddp", "fsdp", "fsdp2", "trainer-ddp", "trainer-fsdp", "trainer-fsdp2", "trainer-fsdp2-sharded")
ZERO = ("zero1", "zero2", "trainer-zero2", "zero3", "trainer-zero3")
SETTINGS = {"accumulation": 2, "optimizer": {"eps": 1e-4}}
LENGTH = {"steps": 8, "checkpoint_every": 4}

pytestmark = pytest.mark.timeout(1800)


def cell(name: str, **settings) -> Cell:
    sharded = {"backend": "fsdp2", "trainer_checkpoint": "sharded"} if name.endswith("-sharded") else None
    return backend_cell(name.removesuffix("-sharded"), sharded, **SETTINGS | settings)


@pytest.mark.full  # `tests/test_main_job.py` kills and resumes a run in every test run
def test_killed_run_goes_on_bit_for_bit(monkeypatch, tmp_path):
    """Cut off in the middle of step 6, it goes on from the checkpoint after step 4."""
    chosen = backend_cell("fsdp2", **SETTINGS | {"optimizer": {"schedule": "cosine"}})
    order = native.spec(tmp_path / "attempt-1", chosen, kind=RunKind.LEARNING, **LENGTH)
    native.plant(monkeypatch, "kill 1 6")
    killed = native.run(order, worker="sabotage")
    assert (killed.outcome, killed.failure.rank, killed.failure.exit_code) == (Outcome.CRASHED, 1, -9)
    checkpoint = latest_checkpoint(tmp_path / "attempt-1")
    assert checkpoint.name == "step-4"

    again = together(tmp_path / "attempt-2", {"whole": chosen, "rest": chosen}, resume={"rest": checkpoint}, **LENGTH)
    unbroken, resumed = again["whole"], again["rest"]
    assert [row.resumed for row in resumed.rows] == [True] * 4 + [False] * 4
    assert resumed.losses == unbroken.losses
    assert resumed.norms == unbroken.norms
    assert resumed.figures.checkpoint_load_seconds > 0


@pytest.mark.full
@pytest.mark.parametrize("names", [TORCH, ZERO], ids=["torch", "deepspeed"])
def test_resumed_in_fresh_processes_as_if_unbroken(names, tmp_path):
    cells = {name: cell(name) for name in names}
    first = together(tmp_path / "first", cells, steps=4, checkpoint_every=4)
    unbroken = together(tmp_path / "whole", cells, steps=8)
    saved = {name: each.folder / "checkpoint" / "step-4" for name, each in first.items()}
    resumed = together(tmp_path / "resumed", cells, resume=saved, steps=8)
    for name in names:
        assert [row.resumed for row in resumed[name].rows] == [True] * 4 + [False] * 4
        # At least three steps: the first shows the weights alone, Adam's moments show from the second on.
        assert resumed[name].losses == unbroken[name].losses, name
        assert resumed[name].norms == unbroken[name].norms, name
        assert resumed[name].figures.checkpoint_load_seconds > 0, name
        exports = [each[name].folder / "export" / "model.safetensors" for each in (resumed, unbroken)]
        assert exports[0].read_bytes() == exports[1].read_bytes(), name


@pytest.mark.full
@pytest.mark.parametrize("stack", ["fsdp", "trainer-fsdp"])
def test_fsdp1_loads_parameters_of_fewer_rows_than_ranks(stack, tmp_path):
    """CogACT's embedding of no condition has one row: the second rank has no part of it."""
    chosen = backend_cell(stack, model="cogact", **SETTINGS)
    first = together(tmp_path / "first", {"run": chosen}, steps=2, checkpoint_every=2)["run"]
    saved = {"run": first.folder / "checkpoint" / "step-2"}
    resumed = together(tmp_path / "resumed", {"run": chosen}, resume=saved, steps=4)["run"]
    unbroken = together(tmp_path / "whole", {"run": chosen}, steps=4)["run"]
    assert resumed.losses == unbroken.losses
    assert resumed.norms == unbroken.norms


@pytest.fixture
def one_rank(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.full
@pytest.mark.parametrize("backend", ["ddp", "fsdp2"])
def test_two_ranks_to_one_and_back(backend, one_rank, tmp_path):
    """Loaded and saved again by one rank, the checkpoint continues on two as if nothing had happened."""
    chosen, single = cell(backend), cell(backend, ranks=1, micro_batch=8)
    first = together(tmp_path / "first", {backend: chosen}, steps=4, checkpoint_every=4)[backend]
    engine = build_engine(build("pi0", "tiny"), single, torch.device("cpu"))
    engine.load(first.folder / "checkpoint" / "step-4")
    moved = tmp_path / "moved" / "checkpoint" / "step-4"
    engine.save(moved)
    shutil.copy(first.folder / "rank-0.steps.jsonl", tmp_path / "moved")
    resumed = together(tmp_path / "again", {backend: chosen}, resume={backend: moved}, steps=8)[backend]
    unbroken = together(tmp_path / "whole", {backend: chosen}, steps=8)[backend]
    assert resumed.losses == pytest.approx(unbroken.losses, abs=1e-5)
    assert resumed.norms == pytest.approx(unbroken.norms, rel=1e-5)


@pytest.mark.full
def test_zero_goes_on_with_one_rank_as_fsdp2_does(tmp_path):
    """Through DeepSpeed's universal form. FSDP2, shown above to lose nothing on this way, says what is right."""
    names = ("fsdp2", "zero2", "zero3")
    first = together(tmp_path / "two", {name: cell(name) for name in names}, **LENGTH | {"steps": 4})
    saved = {name: each.folder / "checkpoint" / "step-4" for name, each in first.items()}
    single = {name: cell(name, ranks=1, micro_batch=8) for name in names}
    resumed = together(tmp_path / "one", single, resume=saved, **LENGTH)
    for name in names:
        assert resumed[name].losses == pytest.approx(resumed["fsdp2"].losses, abs=1e-5), name
        assert resumed[name].norms == pytest.approx(resumed["fsdp2"].norms, rel=1e-4), name
        assert not (saved[name] / "universal").exists()


@pytest.mark.full
def test_the_trainer_refuses_zero_parts_of_other_ranks(tmp_path):
    first = together(tmp_path, {"trainer-zero2": cell("trainer-zero2")}, steps=2, checkpoint_every=2)["trainer-zero2"]
    single = cell("trainer-zero2", ranks=1, micro_batch=8)
    order = native.spec(tmp_path / "one", single, steps=4, resume_from=first.folder / "checkpoint" / "step-2")
    record = native.run(order)
    assert record.outcome is Outcome.CRASHED
    assert "one part per rank" in record.failure.reason
