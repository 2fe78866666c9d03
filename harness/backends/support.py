"""What a backend cannot do, known before anything is started. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.plan import Cell


def unsupported(cell: Cell, cuda: bool) -> str | None:  # noqa: ARG001
    """The reason why this cell cannot run, or None. All else runs on gloo and CPU as on nccl and GPUs.

    Args:
        cuda: whether each rank will have a GPU.
    """
    if cell.backend.backend == "fsdp" and cell.ranks == 1:
        return "FSDP1 does not shard over one rank: it switches to NO_SHARD by itself"
    if cell.backend.backend == "ddp" and cell.precision == "bf16" and cell.activation_checkpointing:
        return "DDP in bf16 casts parameters for the time of the forward; recomputing in the backward would miss that"
    return None
