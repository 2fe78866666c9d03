"""What the four backends share: the order of work in a step, and reading back what is in force."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from harness.backends.checkpoint import begin_checkpoint, finish_checkpoint, open_checkpoint, write_weights
from harness.backends.modules import dtype_name, held_bytes, own_name, state_tensors
from harness.backends.optimizer import settings_in_force
from harness.backends.probe import Probe
from harness.data.batch import Batch
from harness.plan import Cell
from harness.train.facts import InForce, ShardBytes
from harness.train.phases import PhaseClock


@dataclass(frozen=True)
class Parts:
    """A model under a backend, as our own `build` or accelerate put it together.

    Attributes:
        model: the module whose parameters carry the model's own names (up to wrapper parts) and which answers for
            its state; FSDP1's root wrapper alone knows how its shards belong together.
        net: the object that is called to run the forward.
        optimizer: the torch optimizer that updates the parameters or their float32 masters.
        probe: watches the model's first step.
        mode: the path of arguments by which it was built: `native`, `trainer_fsdp2_native` …
    """

    model: nn.Module
    net: Any
    optimizer: torch.optim.Optimizer
    probe: Probe
    mode: str = "native"


class BaseEngine(ABC):
    """Everything of `Engine` that does not depend on the backend. For a model that accelerate put together, only
    what reads it back is used: `export`, `shard_bytes` and `in_force`."""

    def __init__(self, parts: Parts, cell: Cell, device: torch.device) -> None:
        self.model, self.net, self.optimizer = parts.model, parts.net, parts.optimizer
        self.cell, self.device, self.mode = cell, device, parts.mode
        self._probe = parts.probe
        self._before_resume: InForce | None = None

    def split(self, clock: PhaseClock) -> None:
        self._probe.clock = clock

    def backward(self, batch: Batch, last: bool) -> Tensor:
        with self._reduction(last):
            loss: Tensor = self.net(batch.to(self.device))
            self._probe.forward_ended(micro_batch=batch.actions.shape[0])
            self._differentiate(loss, last)
        self._probe.backward_ended()
        return loss.detach().float()

    def step(self, learning_rate: float) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        norm = self._update()
        self._probe.step_ended()
        return norm

    def save(self, folder: Path) -> None:
        begin_checkpoint(folder)
        self._save_state(folder)
        finish_checkpoint(folder, self.cell, self.in_force())

    def load(self, folder: Path) -> None:
        mark = open_checkpoint(folder, self.cell)
        self._before_resume = mark.in_force
        self._load_state(folder, ranks=mark.ranks)

    def export(self, file: Path) -> None:
        state = self._whole_state()
        if dist.get_rank() == 0:
            write_weights({own_name(name): tensor for name, tensor in state.items()}, file)
        dist.barrier()

    def shard_bytes(self) -> ShardBytes:
        return ShardBytes(
            parameter_bytes=self._parameter_bytes(),
            gradient_bytes=held_bytes(p.grad for p in self.model.parameters()) + self._gradient_buffer_bytes(),
            optimizer_bytes=held_bytes(state_tensors(self.optimizer)) + self._master_bytes(),
        )

    def in_force(self) -> InForce:
        if self._before_resume is not None and not self._probe.has_observed:
            return self._before_resume
        seen = self._probe.observed
        return InForce(
            backend=self.cell.backend.backend,
            resolved_mode=self.mode,
            wrapper=type(self.net).__name__,
            parameter_class=self.parameter_class(),
            sharded_units=self.sharded_units(),
            zero_stage=self._zero_stage(),
            world_size=dist.get_world_size(),
            collective_backend=dist.get_backend(),
            parameter_dtype=dtype_name(seen.parameter_dtype),
            autocast_dtype=None if seen.autocast_dtype is None else dtype_name(seen.autocast_dtype),
            master_dtype=dtype_name(self._master_dtype()),
            reduce_dtype=dtype_name(self._reduce_dtype()),
            micro_batch=seen.micro_batch,
            accumulation=seen.accumulation,
            clip=self._clip_in_force(),
            activation_checkpointing=seen.recomputed,
            optimizer_class=f"{type(self.optimizer).__module__}.{type(self.optimizer).__qualname__}",
            optimizer=settings_in_force(self.optimizer, self.cell.optimizer),
        )

    @abstractmethod
    def _differentiate(self, loss: Tensor, last: bool) -> None:
        """Backward of one micro-batch; gradients add up to the mean over accumulation and ranks."""

    @abstractmethod
    def _update(self) -> float:
        """Clips, updates, clears; returns the global gradient norm before clipping."""

    @abstractmethod
    def _save_state(self, folder: Path) -> None: ...

    @abstractmethod
    def _load_state(self, folder: Path, ranks: int) -> None:
        """Takes over what `ranks` ranks have saved; these need not be as many as now."""

    @abstractmethod
    def _whole_state(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers, unsharded; only rank 0's answer is used, but every rank must call."""

    @abstractmethod
    def _reduce_dtype(self) -> torch.dtype: ...

    @abstractmethod
    def _clip_in_force(self) -> float: ...

    def _reduction(self, last: bool) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Holds back the gradient reduction until the last micro-batch, where a backend can."""
        return nullcontext()

    def _master_dtype(self) -> torch.dtype:
        parameter: Tensor = self.optimizer.param_groups[0]["params"][0]
        return parameter.dtype

    def parameter_class(self) -> str:
        """`Parameter` or `DTensor`."""
        return "DTensor" if isinstance(next(self.model.parameters()), DTensor) else "Parameter"

    def sharded_units(self) -> int:
        """Modules that FSDP wraps."""
        return 0

    def _zero_stage(self) -> int | None:
        return None

    def _parameter_bytes(self) -> int:
        return held_bytes(self.model.parameters())

    def _gradient_buffer_bytes(self) -> int:
        """Gradient memory kept between steps that no parameter's `.grad` shows."""
        return 0

    def _master_bytes(self) -> int:
        """Float32 masters kept apart from the parameters."""
        return 0
