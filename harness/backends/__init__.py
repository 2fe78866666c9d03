"""The backends by name. A backend's module is imported only when a run asks for it: one backend per process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from harness.errors import BadInput

if TYPE_CHECKING:
    import torch

    from harness.backends.base import Engine
    from harness.models.base import VLA
    from harness.plan import Cell

MODULES = {
    "ddp": "harness.backends.ddp",
    "fsdp": "harness.backends.fsdp",
    "fsdp2": "harness.backends.fsdp2",
    "deepspeed": "harness.backends.deepspeed",
}


def build_engine(model: VLA, cell: Cell, device: torch.device) -> Engine:
    """Puts `model` under the cell's backend, with its optimizer, on the native stack.

    The default process group must exist. The model comes with float32 weights, equal on every rank; under bf16 they
    are rounded to bfloat16 first, because DeepSpeed's float32 masters start from rounded weights and the others'
    would not.

    Raises:
        BadInput: the model's profile forbids FSDP, or names a class that the model does not contain.
    """
    from harness.backends.modules import checkpoint_layers

    prepare_model(model, cell)
    if cell.activation_checkpointing:
        checkpoint_layers(model)
    engine: Engine = backend_module(cell).build(model.to(device), cell, device)
    return engine


def prepare_model(model: VLA, cell: Cell) -> None:
    """Profile and precision, in place: what comes before a backend on either stack. Raises BadInput."""
    from harness.backends.modules import round_to_bfloat16
    from harness.backends.profile import resolved_profile

    backend = cell.backend.backend
    model.profile = resolved_profile(cell.profile, cell.model, model.profile)
    if backend in ("fsdp", "fsdp2") and not model.profile.enabled:
        raise BadInput(cell.label, "profile.enabled", False, f"true, or a model that {backend} can wrap")
    if cell.precision == "bf16" and backend in model.profile.cast_model_to_bf16_backends:
        model.bfloat16()
    elif cell.precision == "bf16":
        round_to_bfloat16(model)


def backend_module(cell: Cell) -> Any:
    """The module of the cell's backend: `build`, `trainer_settings` and `ENGINE`."""
    return import_module(MODULES[cell.backend.backend])
