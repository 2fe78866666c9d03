"""Every backend on both stacks under real torchrun: the same computation, really built, exported alike."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import native_runs as native
import pytest
from safetensors.torch import load_file
from stack_runs import Done, backend_cell, together

from harness.backends.options import VARIANTS
from harness.backends.support import unsupported
from harness.backends.trainer import NATIVE_FSDP2, PLUGIN_FSDP2
from harness.simulate.engines import count
from harness.simulate.records import Counted
from harness.simulate.worker import count_apart
from harness.train.journal import latest_checkpoint

STEPS = 20
SETTINGS = {"accumulation": 2, "optimizer": {"eps": 1e-4, "schedule": "cosine", "warmup_steps": 2}}
"""Adam divides by the gradient's size plus eps: a large eps keeps the noise of zero gradients out of the weights."""

TORCH = ("ddp", "fsdp", "fsdp2", "trainer-ddp", "trainer-fsdp", "trainer-fsdp2")
ZERO = ("zero2", "trainer-zero2", "zero3")
"""ZeRO-3 last: it replaces `torch.nn.functional.linear` for its whole process."""
MORE = ("zero1", "trainer-zero1", "trainer-zero3")
GROUPS = (TORCH, ZERO, MORE)
ALL = (*TORCH, *ZERO, *MORE)
WRAPPERS = {"ddp": "DistributedDataParallel", "fsdp": "FullyShardedDataParallel", "fsdp2": "FSDPPi0"}

pytestmark = pytest.mark.timeout(1800)


def marked(*names: str) -> list[object]:
    """The names to make a test for each, those of `MORE` for the full run only."""
    return [pytest.param(name, marks=pytest.mark.full) if name in MORE else name for name in names]


def plain(name: str) -> str:
    """The backend without its stack."""
    return name.rpartition("-")[2]


class Runs(dict[str, Done]):
    """A learning run of each, alike in everything else; gradients accumulate over two micro-batches.

    Asked for one, all of its group are made, in one process group.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def __missing__(self, name: str) -> Done:
        if reason := unsupported(backend_cell(name), cuda=False):
            pytest.skip(reason)
        (names,) = (group for group in GROUPS if name in group)
        cells = {each: backend_cell(each, **SETTINGS) for each in names}
        cells = {each: cell for each, cell in cells.items() if unsupported(cell, cuda=False) is None}
        self.update(together(self.root, cells, steps=STEPS, checkpoint_every=10))
        return self[name]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    return Runs(tmp_path_factory.mktemp("parity"))


@pytest.mark.parametrize("name", marked(*ALL[1:]))
def test_same_losses_and_gradient_norms(runs, name):
    reference, other = runs["ddp"], runs[name]
    assert max(reference.norms) > 1.0, "clipping must bite for this test to mean anything"
    assert other.losses == pytest.approx(reference.losses, abs=1e-5)
    assert other.norms == pytest.approx(reference.norms, rel=1e-4)
    assert [row.learning_rate for row in other.rows] == [row.learning_rate for row in reference.rows]
    assert reference.losses[0] != reference.losses[-1]


@pytest.mark.parametrize("name", marked(*ALL))
def test_what_is_in_force_is_what_was_asked(runs, name):
    backend, force = plain(name), runs[name].figures.in_force
    assert force.wrapper == WRAPPERS.get(backend, "DeepSpeedEngine")
    assert force.parameter_class == ("DTensor" if backend == "fsdp2" else "Parameter")
    assert force.zero_stage == {"zero1": 1, "zero2": 2, "zero3": 3}.get(backend)
    assert (force.world_size, force.collective_backend) == (2, "gloo")
    assert (force.micro_batch, force.accumulation, force.clip) == (4, 2, 1.0)
    assert force.optimizer == runs[name].cell.optimizer
    assert force.optimizer_class == "torch.optim.adamw.AdamW"
    assert {force.parameter_dtype, force.master_dtype, force.reduce_dtype} == {"float32"}
    assert force.autocast_dtype is None
    assert not force.activation_checkpointing


@pytest.mark.parametrize("name", marked(*ALL))
def test_the_path_taken_is_recorded(runs, name):
    mode, units = runs[name].figures.in_force.resolved_mode, runs[name].figures.in_force.sharded_units
    if not name.startswith("trainer-"):
        assert mode == "native"
        assert units == (3 if name in ("fsdp", "fsdp2") else 0)  # two layers and the root
        return
    backend = plain(name)
    allowed = {"ddp": ["trainer_ddp"], "fsdp": ["trainer_fsdp1"], "fsdp2": [NATIVE_FSDP2, PLUGIN_FSDP2]}
    assert mode in allowed.get(backend, ["trainer_deepspeed"])
    assert units >= 3 if backend in ("fsdp", "fsdp2") else units == 0
    log = next((runs[name].folder.parent / "trainer-fsdp2" / "logs").glob("*/attempt_0/0/stdout.log"), None)
    if name in TORCH and log is not None:
        assert f"resolved_mode={mode} wrapper={WRAPPERS[backend]}" in log.read_text()


@pytest.mark.parametrize("name", marked(*ALL))
def test_each_rank_holds_its_share(runs, name):
    backend, figures = plain(name), runs[name].figures
    whole, trained = 4 * figures.workload.parameters, 4 * figures.workload.trainable_parameters
    held = sum(shard.parameter_bytes for shard in figures.memory.shards)
    assert held == pytest.approx(whole if backend in native.SHARDED else 2 * whole, rel=0.02)
    # Adam's two moments; DeepSpeed also keeps a master copy apart from the parameters.
    copies = (3 if backend.startswith("zero") else 2) * (2 if backend == "ddp" else 1)
    assert sum(shard.optimizer_bytes for shard in figures.memory.shards) == pytest.approx(copies * trained, rel=0.02)


REDUCED = {
    "ddp": ("all_reduce", 1),
    "fsdp2": ("reduce_scatter", 1),
    "zero1": ("all_reduce", 1),
    "zero2": ("all_reduce", 2),
    "zero3": ("reduce_scatter", 2),
}
"""How gradients travel, and how many times in a step of two micro-batches."""


@pytest.mark.parametrize("name", marked(*(name for name in ALL if plain(name) in REDUCED)))
def test_gradients_travel_as_each_backend_sends_them(runs, name):
    figures = runs[name].figures
    counted = {found.kind: found for found in figures.collectives}
    kind, times = REDUCED[plain(name)]
    assert counted[kind].payload_bytes == pytest.approx(times * 4 * figures.workload.trainable_parameters, rel=0.01)


@pytest.mark.parametrize("name", marked(*ALL))
def test_parameters_travel_where_they_are_sharded(runs, name):
    backend, figures = plain(name), runs[name].figures
    gathered = sum(found.payload_bytes for found in figures.collectives if found.kind == "all_gather")
    whole, trained = 4 * figures.workload.parameters, 4 * figures.workload.trainable_parameters
    if backend == "ddp":
        assert gathered == 0
    elif backend in ("zero1", "zero2"):
        assert gathered == pytest.approx(trained, rel=0.01)  # once, after the update
    elif backend == "zero3":
        assert gathered > 0.9 * whole  # so small a model may stay whole over several micro-batches
    else:
        assert 2 * whole < gathered < 4.1 * whole  # in each forward, and what was resharded again in each backward


@pytest.fixture(scope="module")
def predicted() -> dict[str, Counted]:
    """What `harness simulate` says of the native cells. The engines of ZeRO run in a process of their own."""
    cells = {name: backend_cell(name, **SETTINGS) for name in ALL if not name.startswith("trainer-")}
    apart = [name for name in cells if name.startswith("zero")]
    found = dict(zip(apart, count_apart([cells[name] for name in apart]), strict=True))
    return found | {name: count(cell) for name, cell in cells.items() if name not in apart}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", marked(*(name for name in ALL if not name.startswith("trainer-"))))
def test_simulated_ranks_hold_and_send_what_these_did(runs, predicted, name):
    assert_as_predicted(runs[name].figures, predicted[name])


MICRO = ("ddp", "fsdp", "fsdp2", "fsdp2-root", "zero1", "zero2", "zero3")


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("names", [MICRO[:4], MICRO[4:]], ids=["torch", "zero"])
def test_simulated_at_micro_size(names, ranks, tmp_path):
    settings = {"size": "micro", "ranks": ranks, "micro_batch": 2, "accumulation": 2}
    cells = {name: backend_cell(name.removesuffix("-root"), VARIANTS[name].model_dump(), **settings) for name in names}
    real = together(tmp_path, cells, steps=4, warmup_steps=3)
    simulated = count_apart(list(cells.values())) if names[0] == "zero1" else [count(cell) for cell in cells.values()]
    for name, counted in zip(names, simulated, strict=True):
        assert_as_predicted(real[name].figures, counted)


def assert_as_predicted(figures: SimpleNamespace, counted: Counted) -> None:
    """In every call and every byte, those of the first rank.

    Broadcasts aside: a run counts its last warm-up step, and in its second step DDP tells the ranks its buckets' order.
    """
    sent = [one.model_dump() for one in figures.collectives if one.kind != "broadcast"]
    assert [one.model_dump() for one in counted.traffic] == sent
    held = counted.shard.model_copy(update={"gradient_bytes": counted.kept_gradient_bytes})
    assert held == figures.memory.shards[0]


def test_runs_are_comparable(runs):
    workloads = [runs[name].figures.workload for name in (*TORCH, *ZERO)]
    assert all(workload == workloads[0] for workload in workloads)


@pytest.mark.parametrize("name", marked(*ALL[1:]))
def test_exports_hold_the_same_weights(runs, name):
    reference, other = (load_file(runs[each].folder / "export" / "model.safetensors") for each in ("ddp", name))
    assert list(other) == list(reference)
    assert max(float((other[key] - reference[key]).abs().max()) for key in reference) < 2e-5


@pytest.mark.parametrize("name", marked(*ALL[1:]))
def test_initial_exports_are_the_same_file(runs, name):
    reference, other = ((runs[each].folder / "initial.safetensors").read_bytes() for each in ("ddp", name))
    assert other == reference


@pytest.mark.parametrize("name", marked(*ALL))
def test_records_are_complete(runs, name):
    done = runs[name]
    assert [row.step for row in done.rows] == list(range(STEPS))
    assert done.figures.export == "export"
    assert done.figures.speed.measured_steps == STEPS - 2
    assert [row.step for row in done.rows if row.built] == [0]
    for row in done.rows:
        split = row.forward_seconds + row.backward_seconds + row.optimizer_seconds
        assert 0.3 * row.step_seconds < split <= row.step_seconds
        assert min(row.forward_seconds, row.backward_seconds, row.optimizer_seconds) > 0
        assert 0 <= row.skew_seconds < row.step_seconds
    speed = done.figures.speed
    assert speed.median_step_seconds <= speed.p95_step_seconds <= speed.p99_step_seconds
    assert done.figures.checkpoint_save_seconds > 0
    assert done.figures.checkpoint_bytes > 4 * done.figures.workload.parameters
    assert latest_checkpoint(done.folder).name == f"step-{STEPS}"
    assert [folder.name for folder in (done.folder / "checkpoint").iterdir()] == [f"step-{STEPS}"]


def test_the_trainer_writes_its_own_format(runs):
    def files(name: str) -> set[str]:
        return {file.name for file in (runs[name].folder / "checkpoint" / "step-20" / "checkpoint-20").iterdir()}

    assert {"pytorch_model_fsdp.bin", "optimizer.bin", "trainer_state.json"} <= files("trainer-fsdp2")
    assert {"pytorch_model_fsdp_0", "optimizer_0"} <= files("trainer-fsdp")
    assert {"model.safetensors", "optimizer.pt"} <= files("trainer-ddp")
    assert {"global_step20", "latest"} <= files("trainer-zero2")


WITH_REFERENCE = pytest.mark.parametrize(
    "names", [TORCH, ("ddp", *ZERO), ("ddp", *MORE)], ids=["torch", "zero", "more"]
)


@pytest.mark.full
@WITH_REFERENCE
def test_gradient_descent_without_clipping(names, tmp_path):
    """Adam hides a wrong gradient scale; plain gradient descent does not."""
    settings = {"optimizer": {"name": "sgd", "lr": 0.05}, "clip": 0.0, "accumulation": 2}
    done = together(tmp_path, {name: backend_cell(name, **settings) for name in names}, steps=STEPS)
    reference = done["ddp"]
    assert max(reference.norms) > 1.0
    for name, other in done.items():
        assert other.figures.in_force.clip == 0.0, name
        assert other.losses == pytest.approx(reference.losses, abs=1e-5), name
        assert other.norms == pytest.approx(reference.norms, rel=1e-4), name


@pytest.mark.full
@WITH_REFERENCE
def test_one_step_exports_the_same_file(names, tmp_path):
    """After one AdamW step in float32 without clipping, byte for byte.

    ZeRO-3, its own linear layers off, rounds a few gradients in a hundred the other way. Where a gradient is nothing
    but rounding, Adam makes a whole step of it (the tiny model's first convolution has eight channels in eight norms,
    which undo its bias): ZeRO-3 is held against DDP under an eps that no such gradient reaches.
    """
    zero3 = {"backend": "deepspeed", "zero_stage": 3, "memory_efficient_linear": False}
    smooth = {"optimizer": {"eps": SETTINGS["optimizer"]["eps"]}, "clip": 0.0}
    exact = [name for name in names if "zero3" not in name]
    near = {name: backend_cell(name, zero3, **smooth) for name in names if "zero3" in name}
    cells = {name: backend_cell(name, clip=0.0) for name in exact} | {"smooth": backend_cell("ddp", **smooth)} | near
    done = together(tmp_path, cells, steps=1, warmup_steps=0)
    files = {name: each.folder / "export" / "model.safetensors" for name, each in done.items()}
    for name in exact:
        assert files[name].read_bytes() == files["ddp"].read_bytes(), name
    reference = load_file(files["smooth"])
    for name in near:
        other = load_file(files[name])
        assert max(float((other[key] - reference[key]).abs().max()) for key in reference) < 1e-6, name


@pytest.mark.full
@WITH_REFERENCE
def test_bf16_regimes_are_named(names, tmp_path):
    """Float32 masters and float32 reduction everywhere; accelerate adds autocast to DDP and FSDP1."""
    done = together(tmp_path, {name: backend_cell(name, precision="bf16", **SETTINGS) for name in names}, steps=8)
    for name, each in done.items():
        force = each.figures.in_force
        autocast = "bfloat16" if name in ("trainer-ddp", "trainer-fsdp") else None
        assert force.autocast_dtype == autocast, name
        assert force.parameter_dtype == ("float32" if name == "trainer-ddp" else "bfloat16"), name
        assert (force.master_dtype, force.reduce_dtype) == ("float32", "float32"), name
        assert each.losses == pytest.approx(done["ddp"].losses, abs=0.05), name


@pytest.mark.full
@WITH_REFERENCE
def test_activation_checkpointing_changes_no_loss(names, tmp_path):
    cells = {name: backend_cell(name, activation_checkpointing=True, **SETTINGS) for name in names}
    done = together(tmp_path, {"plain": backend_cell("ddp", **SETTINGS)} | cells, steps=8)
    for name in names:
        assert done[name].figures.in_force.activation_checkpointing, name
        assert done[name].losses == pytest.approx(done["plain"].losses, abs=1e-5), name
