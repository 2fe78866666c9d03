"""The engine's own promises, on one rank in this process (no ZeRO here: it would change torch for all tests)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from harness.backends import build_engine
from harness.backends.base import Engine
from harness.backends.checkpoint import open_checkpoint
from harness.backends.support import unsupported
from harness.data.dataset import Batches, open_dataset
from harness.errors import BadInput
from harness.models import build, input_shape
from harness.plan import Cell
from harness.store import read_record, write_record
from harness.suite import Data
from harness.train.records import CheckpointMark

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def batches() -> Batches:
    return Batches(open_dataset(Data(source="synthetic"), None, input_shape("pi0", "tiny")), 0, 0, 1, 4, 1)


def cell(backend: str | dict[str, Any] = "ddp", **settings: Any) -> Cell:
    plain = {
        "label": "x",
        "model": "pi0",
        "size": "tiny",
        "ranks": 1,
        "micro_batch": 4,
        "backend": {"backend": backend} if isinstance(backend, str) else backend,
        "data": {"source": "synthetic"},
    }
    chosen = Cell.model_validate(plain | settings)
    if reason := unsupported(chosen, cuda=False):
        pytest.skip(reason)
    return chosen


def engine_of(chosen: Cell) -> Engine:
    torch.manual_seed(0)
    return build_engine(build("pi0", "tiny"), chosen, CPU)


def train(engine: Engine, batches: Batches, steps: range, rate: float = 1e-3) -> list[tuple[float, float]]:
    done = []
    for step in steps:
        loss = float(engine.backward(batches.at(step, 0), last=True))
        done.append((loss, engine.step(rate)))
    return done


def weights(engine: Engine, file: Path) -> dict[str, torch.Tensor]:
    engine.export(file)
    return load_file(file)


def test_clipping_scales_the_update_of_gradient_descent(batches, tmp_path):
    """A plain gradient step with norm n > clip moves the weights clip/n times as far as an unclipped one."""
    sgd = {"name": "sgd", "lr": 1.0}
    free, bound = (engine_of(cell(clip=clip, optimizer=sgd)) for clip in (0.0, 0.5))
    before = weights(free, tmp_path / "before")
    (_, norm), (_, same_norm) = (train(engine, batches, range(1), rate=0.01)[0] for engine in (free, bound))
    assert norm == same_norm
    assert norm > 0.5
    moved = [
        torch.cat([(after[name] - before[name]).flatten() for name in before]).norm()
        for after in (weights(free, tmp_path / "free"), weights(bound, tmp_path / "bound"))
    ]
    assert float(moved[0]) == pytest.approx(0.01 * norm, rel=1e-3)
    assert float(moved[1]) == pytest.approx(0.01 * 0.5, rel=1e-3)


@pytest.mark.parametrize("backend", ["ddp", "fsdp2"])
def test_checkpoint_restores_weights_and_optimizer(backend, batches, tmp_path):
    unbroken = engine_of(cell(backend))
    train(unbroken, batches, range(3))
    unbroken.save(tmp_path / "step-3")
    resumed = engine_of(cell(backend))
    resumed.load(tmp_path / "step-3")
    assert resumed.in_force() == unbroken.in_force()  # no step of its own yet
    assert train(resumed, batches, range(3, 6)) == train(unbroken, batches, range(3, 6))


def test_cut_off_or_foreign_checkpoints_are_refused(batches, tmp_path):
    engine = engine_of(cell())
    train(engine, batches, range(1))
    engine.save(tmp_path / "step-1")
    with pytest.raises(BadInput, match="cell_identity"):
        engine_of(cell(clip=0.25)).load(tmp_path / "step-1")
    (tmp_path / "step-1" / "complete.json").unlink()
    with pytest.raises(BadInput, match="cut-off"):
        engine_of(cell()).load(tmp_path / "step-1")


def test_saving_again_leaves_nothing_of_a_cut_off_try(batches, tmp_path):
    engine = engine_of(cell())
    train(engine, batches, range(1))
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "rubbish").write_text("half a file")
    engine.save(tmp_path / "step-1")
    assert not (tmp_path / "step-1" / "rubbish").exists()


@pytest.mark.parametrize("backend", ["ddp", "fsdp2"])
def test_export_has_the_models_own_names_and_initial_weights(backend, tmp_path):
    torch.manual_seed(0)
    bare = build("pi0", "tiny").state_dict()
    exported = weights(engine_of(cell(backend, activation_checkpointing=True)), tmp_path / "w")
    assert set(exported) == set(bare)
    assert all(torch.equal(exported[name], bare[name]) for name in bare)


@pytest.mark.parametrize("recompute", [False, True])
def test_in_force_observes_recomputation(recompute, batches):
    engine = engine_of(cell("fsdp2", activation_checkpointing=recompute))
    with pytest.raises(RuntimeError, match="first optimizer step"):
        engine.in_force()
    train(engine, batches, range(1))
    assert engine.in_force().activation_checkpointing is recompute


def test_recomputation_is_observed_beside_a_frozen_tower(batches):
    """The tower's layers are wrapped too, but nothing in them is computed again."""
    torch.manual_seed(0)
    model = build("dm0", "tiny")
    model.freeze(["vision"])
    engine = build_engine(model, cell("fsdp2", model="dm0", activation_checkpointing=True), CPU)
    train(engine, batches, range(1))
    assert engine.in_force().activation_checkpointing


@pytest.mark.parametrize("backend", ["ddp", "fsdp2"])
def test_bf16_computes_in_bf16_and_keeps_float32_masters(backend, batches, tmp_path):
    engine = engine_of(cell(backend, precision="bf16"))
    initial = weights(engine, tmp_path / "w")
    assert all(torch.equal(tensor, tensor.bfloat16().float()) for tensor in initial.values())
    train(engine, batches, range(1))
    force = engine.in_force()
    assert (force.parameter_dtype, force.master_dtype, force.reduce_dtype) == ("bfloat16", "float32", "float32")
    after = weights(engine, tmp_path / "after")
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in after.values())


def test_hyper_parameters_are_read_from_the_live_optimizer(batches):
    settings = {"name": "adamw", "lr": 2e-3, "beta1": 0.8, "beta2": 0.9, "eps": 1e-6, "weight_decay": 0.1}
    engine = engine_of(cell(optimizer=settings))
    engine.optimizer.param_groups[0]["weight_decay"] = 0.2
    train(engine, batches, range(1), rate=1e-4)
    found = engine.in_force().optimizer
    assert (found.lr, found.beta1, found.beta2, found.eps, found.weight_decay) == (2e-3, 0.8, 0.9, 1e-6, 0.2)


def test_meta_init_gives_weights_and_buffers_back(batches, tmp_path):
    """A state dict holds no non-persistent buffer: after `to_empty` it is garbage, and the loss only a bit off."""

    def engine(**options: Any) -> Engine:
        torch.manual_seed(0)
        model = build("pi0", "tiny")
        model.register_buffer("frequencies", torch.arange(5.0), persistent=False)
        model.register_buffer("kept", torch.full((3,), 7.0))
        return build_engine(model, cell(backend={"backend": "fsdp2"} | options), CPU)

    plain, refilled = engine(), engine(meta_init=True)
    assert torch.equal(refilled.model.frequencies, torch.arange(5.0))
    before, after = weights(plain, tmp_path / "plain"), weights(refilled, tmp_path / "refilled")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert set(after) == set(before)
    assert [p.requires_grad for p in plain.model.parameters()] == [p.requires_grad for p in refilled.model.parameters()]
    assert train(refilled, batches, range(2)) == train(plain, batches, range(2))


def test_offloaded_fsdp2_computes_the_same(batches):
    offloaded = engine_of(cell(backend={"backend": "fsdp2", "cpu_offload": True}))
    assert train(offloaded, batches, range(2)) == train(engine_of(cell("fsdp2")), batches, range(2))


def test_dtypes_of_the_policy_are_the_cells(batches):
    options = {"backend": "fsdp2", "param_dtype": "bf16", "reduce_dtype": "bf16", "output_dtype": "fp32"}
    engine = engine_of(cell(backend=options))
    train(engine, batches, range(1))
    force = engine.in_force()
    assert (force.parameter_dtype, force.reduce_dtype, force.master_dtype) == ("bfloat16", "bfloat16", "float32")


def moved(folder: Path, **changes: Any) -> None:
    """Rewrites facts of a checkpoint's mark."""
    mark = read_record(folder / "complete.json", CheckpointMark)
    write_record(folder / "complete.json", mark.model_copy(update=changes))


def test_a_checkpoint_of_other_ranks_is_loaded_only_for_the_same_training(batches, tmp_path):
    folder, single = tmp_path / "step-1", cell(micro_batch=4)
    engine = engine_of(single)
    train(engine, batches, range(1))
    engine.save(folder)
    pair = cell(ranks=2, micro_batch=2)
    moved(folder, ranks=2, cell_identity=pair.identity, training_identity=pair.training_identity)
    engine_of(single).load(folder)
    moved(folder, samples_per_step=5)
    with pytest.raises(BadInput, match="samples_per_step"):
        engine_of(single).load(folder)
    moved(folder, training_identity="another")
    with pytest.raises(BadInput, match="training_identity"):
        engine_of(single).load(folder)


def test_where_ranks_are_fixed_other_numbers_are_refused(batches, tmp_path):
    engine = engine_of(cell())
    train(engine, batches, range(1))
    engine.save(tmp_path / "step-1")
    moved(tmp_path / "step-1", ranks=2)
    with pytest.raises(BadInput, match="one part per rank"):
        open_checkpoint(tmp_path / "step-1", cell(), fixed_ranks="one part per rank")


def test_other_versions_are_named(batches, tmp_path):
    engine = engine_of(cell())
    train(engine, batches, range(1))
    engine.save(tmp_path / "step-1")
    moved(tmp_path / "step-1", versions={"torch": "1.0.0"})
    with pytest.warns(UserWarning, match=r"step-1 was written with torch 1\.0\.0, not "):
        engine_of(cell()).load(tmp_path / "step-1")


def test_a_profile_of_the_cell_wins(batches):
    root_only = engine_of(cell("fsdp2", profile={"transformer_layer_cls_to_wrap": []}))
    train(root_only, batches, range(1))
    assert root_only.in_force().sharded_units == 1
    with pytest.raises(BadInput, match=r"profile.enabled"):
        engine_of(cell("fsdp2", profile={"enabled": False}))
    with pytest.raises(BadInput, match='did you mean "JointLayer"'):
        engine_of(cell("fsdp2", profile={"transformer_layer_cls_to_wrap": ["JointLayr"]}))


def test_a_profile_may_cast_the_whole_model(batches):
    engine = engine_of(cell("fsdp2", precision="bf16", profile={"cast_model_to_bf16_backends": ["fsdp2"]}))
    train(engine, batches, range(1))
    assert engine.in_force().master_dtype == "bfloat16"
