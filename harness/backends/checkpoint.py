"""A checkpoint on disk: whole or not there at all, and the backend-neutral export of the weights."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import version
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from harness.errors import BadInput
from harness.plan import Cell
from harness.store import folder_bytes, read_record, write_atomically, write_record
from harness.train.records import COMPLETE, CheckpointMark, InForce

_DISTRIBUTION = {"ddp": "torch", "fsdp": "torch", "fsdp2": "torch", "deepspeed": "deepspeed"}


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
    torch.save(states, folder / f"generators-rank-{dist.get_rank()}.pt")
    dist.barrier()
    if dist.get_rank() == 0:
        for file in folder.rglob("*"):
            if file.is_file():
                _sync(file)
        mark = CheckpointMark(
            cell_identity=cell.identity,
            ranks=dist.get_world_size(),
            backend=cell.backend.backend,
            backend_version=version(_DISTRIBUTION[cell.backend.backend]),
            torch_version=torch.__version__,
            checkpoint_bytes=folder_bytes(folder),
            in_force=in_force,
        )
        write_record(folder / COMPLETE, mark)
    dist.barrier()


def open_checkpoint(folder: Path, cell: Cell) -> CheckpointMark:
    """Checks that the checkpoint is whole and this cell's, and restores this rank's generators.

    Raises BadInput when it is neither.
    """
    if not (folder / COMPLETE).exists():
        raise BadInput(folder, None, None, f"a complete checkpoint; without {COMPLETE} it is a cut-off one")
    mark = read_record(folder / COMPLETE, CheckpointMark)
    if mark.cell_identity != cell.identity:
        raise BadInput(folder / COMPLETE, "cell_identity", mark.cell_identity, f"{cell.identity} ({cell.label})")
    if mark.ranks != dist.get_world_size():
        raise BadInput(folder / COMPLETE, "ranks", mark.ranks, f"{dist.get_world_size()}, as many as now run")
    states = torch.load(folder / f"generators-rank-{dist.get_rank()}.pt", weights_only=True)
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    return mark


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
