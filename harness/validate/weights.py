"""Rules on parameters and buffers: who owns them, which unit holds them, whether the loss reaches them."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from harness.backends.modules import dtype_name
from harness.validate.findings import Finding, place
from harness.validate.subject import Subject
from harness.validate.tracing import is_at_or_below

BUFFER_BYTES, BUFFER_SHARE = 2**20, 0.01
"""A buffer counts as large from this many bytes on, if it is also this share of all parameters' bytes."""


def never_receives_gradient(subject: Subject) -> list[Finding]:
    """Trainable parameters that the loss does not reach.

    DDP without `find_unused_parameters` fails on the second step ("Expected to have finished reduction in the prior
    iteration", PyTorch's `DistributedDataParallel`), and gradient norms and optimizer states are of other sets.
    """
    if subject.step.failure:
        return []
    trained = [name for name, parameter in subject.model.named_parameters() if parameter.requires_grad]
    reached = [name for name in trained if subject.model.get_parameter(name).grad is not None]
    homes: dict[str, list[str]] = {}
    for name in sorted(set(trained) - set(reached), key=trained.index):
        homes.setdefault(_outermost_without(name, reached), []).append(name)
    return [
        Finding(
            rule="never-receives-gradient",
            where=place(home),
            severity="error",
            why=f"the loss does not reach {names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: "
            "DDP waits for gradients that never come",
            change="set requires_grad=False on it in __init__, or remove the module",
        )
        for home, names in homes.items()
    ]


def gradient_around_output(subject: Subject) -> list[Finding]:
    """A unit that is trained although no gradient comes in through what it returns.

    FSDP gathers a unit for its backward when the gradient of its output arrives. Where only keys and values leave it,
    through a cache, the backward finds freed storage ("setStorage … out of bounds for storage of size 0": FSDP2 around
    the last language layer of transformers' `PI0ForConditionalGeneration`).
    """
    if subject.step.failure:
        return []
    return [
        Finding(
            rule="gradient-around-output",
            where=place(path),
            severity="error",
            why="its parameters are trained, but no gradient reaches its output: sharded, it stays so in the backward",
            change="return from its forward whatever leaves it (keys and values, too), or take it out of the profile",
        )
        for path, unit in subject.units.items()
        if path in subject.step.called - subject.step.reached
        and any(parameter.grad is not None for parameter in unit.parameters())
    ]


def tied_weights(subject: Subject) -> list[Finding]:
    """One parameter under two names that lie in two units, such as an output embedding tied to the input's.

    A parameter belongs to one unit: torch 2.13 refuses ("is shared with a parameter already managed by another FSDP
    group"), and before that part of the rows was never updated (pytorch/pytorch#176076).
    """
    holders: dict[int, list[str]] = {}
    for name, parameter in subject.model.named_parameters(remove_duplicate=False):
        holders.setdefault(id(parameter), []).append(name)
    found = []
    for names in holders.values():
        units = {name: unit_of(name, subject.units) for name in names}
        if len(set(units.values())) > 1:
            homes = ", ".join(f"{name} in unit {place(unit)}" for name, unit in units.items())
            found.append(
                Finding(
                    rule="tied-weights",
                    where=place(names[-1].rpartition(".")[0]),
                    severity="error",
                    why=f"one parameter would belong to two units: {homes}",
                    change="keep both outside of the profile's layers, in the root's unit, or untie them",
                )
            )
    return found


def mixed_unit_dtypes(subject: Subject) -> list[Finding]:
    """Parameters of more than one dtype within a unit.

    FSDP2: "FSDP expects uniform original parameter dtype", of those that train; FSDP1: "Must flatten tensors with
    uniform dtype" (huggingface/trl#1723), of all.
    """
    dtypes: dict[str, dict[torch.dtype, str]] = {}
    trained: dict[str, set[torch.dtype]] = {}
    for name, parameter in subject.model.named_parameters():
        unit = unit_of(name, subject.units)
        dtypes.setdefault(unit, {}).setdefault(parameter.dtype, name)
        trained.setdefault(unit, set()).update([parameter.dtype] if parameter.requires_grad else [])
    found = []
    for unit, examples in dtypes.items():
        if len(examples) > 1:
            odd = list(examples.values())[-1]
            kinds = ", ".join(f"{name} is {dtype_name(dtype)}" for dtype, name in examples.items())
            refuses = "FSDP" if len(trained[unit]) > 1 else "FSDP1"
            found.append(
                Finding(
                    rule="mixed-unit-dtypes",
                    where=place(odd.rpartition(".")[0]),
                    severity="error" if refuses == "FSDP" else "warning",
                    why=f"{refuses} shards a unit in one dtype, but in unit {place(unit)} {kinds}",
                    change="build all parameters in float32; backends and `precision` choose what is computed in",
                )
            )
    return found


def large_persistent_buffers(subject: Subject) -> list[Finding]:
    """Buffers that are large and part of the state dict.

    No backend shards a buffer: it is whole on every rank, and every rank's checkpoint carries it.
    """
    weights = _bytes(subject.model.parameters())
    found = []
    for path, module in subject.model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            size = _bytes([buffer])
            persistent = name not in module._non_persistent_buffers_set
            if persistent and size >= max(BUFFER_BYTES, BUFFER_SHARE * weights):
                found.append(
                    Finding(
                        rule="large-persistent-buffer",
                        where=place(path),
                        severity="warning",
                        why=f"buffer {name} of {size / 2**20:.1f} MiB is whole on every rank and in every checkpoint",
                        change="register it with persistent=False and compute it anew, or make it a frozen parameter",
                    )
                )
    return found


def own_optimizer(subject: Subject) -> list[Finding]:
    """A model that builds its optimizer itself, so before anything is sharded.

    Sharding replaces the parameters: such an optimizer steps tensors that nobody uses, and the loss never changes.
    """
    return [
        Finding(
            rule="optimizer-before-sharding",
            where=place(path),
            severity="error",
            why=f"its {type(value).__name__} `{name}` was built on parameters that sharding replaces",
            change="leave the optimizer to the harness, which builds it on the sharded parameters",
        )
        for path, module in subject.model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.optim.Optimizer)
    ]


def unit_of(name: str, units: Iterable[str]) -> str:
    """The path of the innermost unit that holds a parameter; the root's is empty."""
    return max((path for path in units if is_at_or_below(name, path)), key=len, default="")


def _outermost_without(name: str, reached: list[str]) -> str:
    """The outermost module around a parameter in which none is reached; its owner's path if there is no such one."""
    owner = name.rpartition(".")[0]
    levels = owner.split(".")
    around = (".".join(levels[:depth]) for depth in range(1, len(levels) + 1))
    return next((path for path in around if not any(is_at_or_below(other, path) for other in reached)), owner)


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
