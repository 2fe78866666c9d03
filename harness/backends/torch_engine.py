"""What DDP, FSDP and FSDP2 share: PyTorch's own optimizer step, clipping and distributed checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from harness.backends.engine import BaseEngine
from harness.backends.short_parameters import load_planner

_STATE = "state"


class TorchEngine(BaseEngine):
    """An engine whose parameters are updated by a plain torch optimizer."""

    def _differentiate(self, loss: Tensor, last: bool) -> None:  # noqa: ARG002
        (loss / self.cell.accumulation).backward()

    def _update(self) -> float:
        norm = self._clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def _clip(self) -> float:
        """Scales gradients to the largest allowed global norm; returns the norm before."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
        # A norm of sharded gradients is itself a DTensor, in some PyTorch versions holding this rank's part only.
        whole = norm.full_tensor() if isinstance(norm, DTensor) else norm
        if self.cell.clip > 0:
            clip_grads_with_norm_(parameters, self.cell.clip, whole)
        return float(whole)

    def _clip_in_force(self) -> float:
        return self.cell.clip

    def _save_state(self, folder: Path) -> None:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        save({"model": model, "optimizer": optimizer}, checkpoint_id=folder / _STATE)

    def _load_state(self, folder: Path, ranks: int) -> None:  # noqa: ARG002 (distributed checkpoints reshard)
        model, optimizer = get_state_dict(self.model, self.optimizer)
        load({"model": model, "optimizer": optimizer}, checkpoint_id=folder / _STATE, planner=load_planner())
        set_state_dict(self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer)

    def _whole_state(self) -> dict[str, Tensor]:
        # Offloading from CPU to CPU is no copy, and FSDP1 frees the storage under it (Lightning-AI/pytorch-lightning
        # issue 21804), so it is asked for on accelerators alone.
        options = StateDictOptions(full_state_dict=True, cpu_offload=self.device.type != "cpu")
        state = get_model_state_dict(self.model, options=options)
        return {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}
