"""What autograd keeps of a micro-batch for its backward, counted on `meta`."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.backends.modules import checkpoint_layers
from harness.models.base import VLA
from harness.models.flops import meta_batch
from harness.plan import Cell


def activation_bytes(model: VLA, cell: Cell) -> int:
    """Bytes autograd keeps for the backward of one micro-batch, by storage, without the parameters' own.

    Args:
        model: the cell's, on `meta`; it is changed to the cell's dtype and recomputation.
    """
    if cell.precision == "bf16":
        model.bfloat16()
    if cell.activation_checkpointing:
        checkpoint_layers(model)
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if (place := tensor.untyped_storage()._cdata) not in own:
            kept[place] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(meta_batch(model, cell.micro_batch))
    total = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    del loss
    return total
