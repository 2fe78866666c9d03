"""Weights between models and published checkpoints, every tensor accounted for."""

from __future__ import annotations

from pathlib import Path

import torch

from harness.errors import BadInput, DamagedRecord
from harness.models.base import VLA
from harness.models.formats.files import SHARD_BYTES, Tensors, write_tensors
from harness.models.formats.rules import FORMATS, Format

_SHOWN = 5
"""How many names of each kind of fault a message holds; it counts them all."""


def formats_of(model: VLA) -> list[Format]:
    """The formats that are for this model's class: our own, and those of others."""
    classes = {kind.__name__ for kind in type(model).__mro__}
    return [chosen for chosen in FORMATS.values() if chosen.model in classes]


def load_checkpoint(model: VLA, path: Path) -> Format:
    """Copies a checkpoint into a model, cast to the dtype of each parameter, and says which format it was in.

    Args:
        path: a safetensors file, an index of shards, or a folder with either.

    Raises:
        BadInput: there is nothing to read, or nothing of this model's in any format we know.
        DamagedRecord: a file cannot be read, or tensors are missing, unexpected or of another shape: all in one
            message, with counts and the first few of each.
    """
    with Tensors(path) as tensors:
        chosen = detect(model, tensors)
        found = match(model, tensors, chosen)
        with torch.no_grad():
            for own, parameter in model.state_dict(keep_vars=True).items():
                parameter.copy_(tensors[found[own]])
    return chosen


def detect(model: VLA, tensors: Tensors) -> Format:
    """The format in which most of a checkpoint's names are this model's. Raises BadInput when none are."""
    own = model.state_dict().keys()

    def shared(chosen: Format) -> int:
        return len({chosen.canonical(name) for name in tensors.stored} & {chosen.published(name) for name in own})

    formats = formats_of(model)
    best = max(formats, key=shared)
    if shared(best) == 0:
        names = ", ".join(chosen.name for chosen in formats)
        first = next(iter(tensors.stored), None)
        raise BadInput(tensors.path, None, first, f"tensors of {type(model).__name__} in one of the formats {names}")
    return best


def match(model: VLA, tensors: Tensors, chosen: Format) -> dict[str, str]:
    """Our name of each tensor of the model → its name in the files. Raises DamagedRecord, see `load_checkpoint`."""
    wanted = {own: tuple(tensor.shape) for own, tensor in model.state_dict().items()}
    published = {own: chosen.published(own) for own in wanted}
    found: dict[str, str] = {}
    unexpected, doubled = [], []
    expected = set(published.values())
    for name in tensors.stored:
        canonical = chosen.canonical(name)
        if canonical in found:
            if not torch.equal(tensors[name], tensors[found[canonical]]):
                doubled.append(f"{name} and {found[canonical]}")
        elif canonical in expected:
            found[canonical] = name
        elif not chosen.is_unread(canonical):
            unexpected.append(name)
    missing = [theirs or own for own, theirs in published.items() if theirs not in found]
    matched = {own: found[theirs] for own, theirs in published.items() if theirs is not None and theirs in found}
    misshapen = [
        f"{name} is {tensors.stored[name].shape}, not {wanted[own]}"
        for own, name in matched.items()
        if tensors.stored[name].shape != wanted[own]
    ]
    faults = {
        "missing": missing,
        "unexpected": unexpected,
        "of another shape": misshapen,
        "twice with different values": doubled,
    }
    if any(faults.values()):
        told = "; ".join(f"{len(names)} {kind} ({_few(names)})" for kind, names in faults.items() if names)
        raise DamagedRecord(
            f"{tensors.path}: not {type(model).__name__}'s weights in the names of {chosen.name}: {told}"
        )
    return matched


def convert(model: VLA, source: Path, target: Format, folder: Path, shard_bytes: int = SHARD_BYTES) -> list[Path]:
    """Writes a checkpoint of a model again in another format. At most one shard is in memory.

    Tensors that no parameter of ours stands for are not made up: whoever loads the result without strictness starts
    them afresh, and they are read by no training of this model.

    Args:
        model: of the checkpoint's class and size; on `meta` will do, its values are not used.
        source: the checkpoint, in any format of the model.

    Returns:
        The files with tensors.

    Raises:
        BadInput: the format is not for this model, or has no names for some part of it.
        DamagedRecord, DiskFull: see `load_checkpoint` and `harness.store.disk_errors`.
    """
    if target not in formats_of(model):
        expected = f"a format of {type(model).__name__}"
        raise BadInput("--format", None, target.name, expected, [chosen.name for chosen in formats_of(model)])
    with Tensors(source) as tensors:
        found = match(model, tensors, detect(model, tensors))
        nameless = [own for own in found if target.published(own) is None]
        if nameless:
            expected = f"a size of the published shape: {target.name} has no names for {_few(nameless)}"
            raise BadInput("--format", None, target.name, expected)
        files = {str(target.published(own)): name for own, name in found.items()}
        sizes = {name: tensors.stored[files[name]].size for name in sorted(files)}
        return write_tensors(folder, sizes, lambda name: tensors[files[name]], shard_bytes)


def _few(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
