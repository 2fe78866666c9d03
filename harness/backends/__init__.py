"""The backends by name. A backend's module is imported only when a run asks for it: one backend per process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
    """Puts `model` under the cell's backend, with its optimizer.

    The default process group must exist. The model comes with float32 weights, equal on every rank; under bf16 they
    are rounded to bfloat16 first, because DeepSpeed's float32 masters start from rounded weights and the others'
    would not.
    """
    from harness.backends.modules import checkpoint_layers, round_to_bfloat16

    if cell.precision == "bf16":
        round_to_bfloat16(model)
    if cell.activation_checkpointing:
        checkpoint_layers(model)
    engine: Engine = import_module(MODULES[cell.backend.backend]).build(model.to(device), cell, device)
    return engine
