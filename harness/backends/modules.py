"""What every backend does to a model before wrapping it, and how parameters are named and counted after."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.tensor import DTensor

from harness.errors import BadInput
from harness.models.base import VLA

_WRAPPER_PARTS = ("_checkpoint_wrapped_module", "_fsdp_wrapped_module")


def profile_layers(model: VLA) -> list[nn.Module]:
    """The modules of the classes to wrap, innermost first.

    Raises BadInput, with the classes present, when one that the profile names does not occur: silently wrapping
    nothing would measure another backend than the one asked for.
    """
    return _modules_of(model, "transformer_layer_cls_to_wrap", model.profile.transformer_layer_cls_to_wrap)


def recomputed_layers(model: VLA) -> list[nn.Module]:
    """The modules that activation checkpointing wraps, innermost first. Raises BadInput as `profile_layers` does."""
    classes = model.profile.recomputed_classes
    return profile_layers(model) if classes is None else _modules_of(model, "recomputed_classes", classes)


def _modules_of(model: VLA, key: str, classes: tuple[str, ...]) -> list[nn.Module]:
    present = {type(module).__name__ for module in model.modules()}
    for name in classes:
        if name not in present:
            raise BadInput(type(model).__name__, f"profile.{key}", name, "the class of a module in it", present)
    return [module for module in model.modules() if type(module).__name__ in classes][::-1]


def sharding_units(model: VLA) -> list[nn.Module]:
    """The modules to shard as one unit each, innermost first: the profile's layers, or the checkpointing around them.

    A unit encloses its checkpoint wrapper, so that the recomputed forward finds the parameters already gathered.
    """
    wrapped = {id(m._checkpoint_wrapped_module): m for m in model.modules() if isinstance(m, CheckpointWrapper)}
    return [wrapped.get(id(layer), layer) for layer in profile_layers(model)]


def checkpoint_layers(model: VLA) -> None:
    """Recomputes the activations of the profile's layers in the backward (torch, non-reentrant), in place."""
    layers = {id(layer) for layer in recomputed_layers(model)}
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=lambda layer: checkpoint_wrapper(
            layer, CheckpointImpl.NO_REENTRANT, preserve_rng_state=False
        ),
        check_fn=lambda module: id(module) in layers,
    )


@torch.no_grad()
def round_to_bfloat16(model: nn.Module) -> None:
    """Rounds every floating parameter to the nearest bfloat16 value and keeps it in its own dtype, in place."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.copy_(parameter.bfloat16().to(parameter.dtype))


def own_name(name: str) -> str:
    """A parameter's name as the bare model has it, whatever was wrapped around its modules."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPER_PARTS)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def held_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the parts this rank holds."""
    parts = (local(tensor) for tensor in tensors if tensor is not None)
    return sum(part.numel() * part.element_size() for part in parts)


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """The tensors an optimizer keeps between steps: Adam's moments and step counts."""
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))


def weights_sha256(model: nn.Module) -> str:
    """SHA-256 over name, dtype, shape and bytes of all parameters, in order of name."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters(remove_duplicate=False)):
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
        digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def dtype_name(dtype: torch.dtype) -> str:
    """`float32`, `bfloat16`."""
    return str(dtype).removeprefix("torch.")
