"""A checkpoint on disk: whole or not there at all, and the backend-neutral export of the weights."""

from __future__ import annotations

import os
import shutil
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from harness.errors import BadInput
from harness.plan import Cell
from harness.store import folder_bytes, read_record, write_atomically, write_record
from harness.train.facts import InForce
from harness.train.records import COMPLETE, CheckpointMark

GENERATORS = "generators-rank-{}.pt"


def begin_checkpoint(folder: Path) -> None:
    """Empties the folder, so that nothing of a cut-off earlier try mixes with what comes. Every rank calls it."""
    if dist.get_rank() == 0:
        (folder / COMPLETE).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    dist.barrier()


def finish_checkpoint(folder: Path, cell: Cell, in_force: InForce) -> None:
    """Adds this rank's generator states; when all ranks have theirs on disk, marks the checkpoint complete."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    torch.save(states, folder / GENERATORS.format(dist.get_rank()))
    dist.barrier()
    if dist.get_rank() == 0:
        for file in folder.rglob("*"):
            if file.is_file():
                _sync(file)
        mark = CheckpointMark(
            cell_identity=cell.identity,
            training_identity=cell.training_identity,
            ranks=dist.get_world_size(),
            samples_per_step=cell.samples_per_step,
            versions=_versions(cell),
            checkpoint_bytes=folder_bytes(folder),
            in_force=in_force,
        )
        write_record(folder / COMPLETE, mark)
    dist.barrier()


def open_checkpoint(folder: Path, cell: Cell, fixed_ranks: str | None = None) -> CheckpointMark:
    """Checks that the checkpoint is whole and this training's, and restores this rank's generators.

    A checkpoint of other versions of torch, the backend or the stack is loaded with a warning that names them.

    Args:
        fixed_ranks: why what another number of ranks wrote cannot be loaded, or None when it can.

    Raises:
        BadInput: it is cut off, of another training, or of another number of ranks where that cannot be loaded.
    """
    if not (folder / COMPLETE).exists():
        raise BadInput(folder, None, None, f"a complete checkpoint; without {COMPLETE} it is a cut-off one")
    mark = read_record(folder / COMPLETE, CheckpointMark)
    _check_training(folder / COMPLETE, mark, cell, fixed_ranks)
    for name, found in _versions(cell).items():
        if mark.versions.get(name) != found:
            warnings.warn(f"{folder.name} was written with {name} {mark.versions.get(name)}, not {found}", stacklevel=2)
    own = folder / GENERATORS.format(dist.get_rank())
    if own.exists():  # else this rank is one more than there were
        _restore_generators(own)
    return mark


def _check_training(file: Path, mark: CheckpointMark, cell: Cell, fixed_ranks: str | None) -> None:
    ranks = dist.get_world_size()
    if mark.ranks != ranks:
        if mark.training_identity != cell.training_identity:
            raise BadInput(file, "training_identity", mark.training_identity, f"that of {cell.label}")
        if fixed_ranks is not None:
            raise BadInput(file, "ranks", mark.ranks, f"{ranks}, as many as now run: {fixed_ranks}")
        if mark.samples_per_step != cell.samples_per_step:
            raise BadInput(file, "samples_per_step", mark.samples_per_step, f"{cell.samples_per_step}, as now")
    elif mark.cell_identity != cell.identity:
        raise BadInput(file, "cell_identity", mark.cell_identity, f"{cell.identity} ({cell.label})")


def _restore_generators(file: Path) -> None:
    states = torch.load(file, weights_only=True)
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _versions(cell: Cell) -> dict[str, str]:
    """Of what reads and writes this cell's checkpoints."""
    parts = ["torch"]
    parts += ["deepspeed"] if cell.backend.backend == "deepspeed" else []
    parts += ["transformers", "accelerate"] if cell.stack == "trainer" else []
    return {name: version(name) for name in parts}


def write_weights(state: dict[str, Tensor], file: Path) -> None:
    """Writes float32 weights as safetensors, in order of name, atomically. Only one rank may call it."""
    from safetensors.torch import save

    whole = {name: _exported(state[name]) for name in sorted(state)}
    write_atomically(file, save(whole))


def _exported(tensor: Tensor) -> Tensor:
    """A contiguous CPU copy of its own memory (safetensors refuses shared memory), floating types as float32."""
    dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to("cpu", dtype, copy=True).contiguous()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
