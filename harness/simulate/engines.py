"""Steps of the real engines on a process group that moves nothing, as the first of many ranks sees them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp._fully_shard import _fsdp_param

from harness.backends import backend_module, ddp, prepare_model
from harness.backends.base import Engine
from harness.backends.modules import checkpoint_layers
from harness.models import build
from harness.models.base import VLA
from harness.models.flops import blank_batch
from harness.plan import Cell
from harness.simulate.fake import NoValues, StandInDdp, fake_world, first_piece, without_storage
from harness.simulate.records import Counted, Traffic
from harness.train.comm import CollectiveCounter

_STEPS = {"ddp": 3, "fsdp": 1, "fsdp2": 1, "deepspeed": 3}
"""The last is counted: in the second one DDP still builds its buckets anew, and ZeRO-3 has only just learnt the order
of the layers."""


def count(cell: Cell) -> Counted:
    """Builds the cell's model and backend and counts a step.

    DDP runs on `meta` and FSDP on fake tensors, so that the size of the model costs nothing. DeepSpeed (0.19.8) reads
    values on the way and runs on real ones: its model has to fit, and its process should be its own.
    """
    with fake_world(cell.ranks):
        if cell.backend.backend == "ddp":
            with mock.patch.object(ddp, "DistributedDataParallel", StandInDdp), NoValues():  # type: ignore[no-untyped-call]
                return _steps(cell, "meta", None)
        if cell.backend.backend == "deepspeed":
            return _steps(cell, "cpu", None)
        with mock.patch.object(_fsdp_param, "_chunk_with_empty", first_piece), NoValues():  # type: ignore[no-untyped-call]
            return _steps(cell, "cpu", FakeTensorMode(allow_non_fake_inputs=True))


def _steps(cell: Cell, device: str, fake: FakeTensorMode | None) -> Counted:
    tensors: AbstractContextManager[Any] = nullcontext() if fake is None else fake
    with torch.device(device if fake is None else "meta"):
        model = build(cell.model, cell.size, cell.layout)
    if fake is not None:
        without_storage(model, fake)
    with tensors:
        prepare_model(model, cell)
        if cell.activation_checkpointing:
            checkpoint_layers(model)
    # Outside of the fake mode, which the fake parameters bring along: a device mesh reads its own ranks.
    engine: Engine = backend_module(cell).build(model, cell, torch.device(device))
    with tensors:
        return _last_step(engine, model, cell, device)


def _last_step(engine: Engine, model: VLA, cell: Cell, device: str) -> Counted:
    for _ in range(_STEPS[cell.backend.backend]):
        with CollectiveCounter() as counter:
            for micro in range(1, cell.accumulation + 1):
                batch = blank_batch(model, cell.micro_batch, device)
                engine.backward(batch, last=micro == cell.accumulation)
            full = engine.shard_bytes()
            engine.step(cell.optimizer.lr)
    kept = engine.shard_bytes()
    return Counted(
        method="engine",
        shard=full.model_copy(update={"optimizer_bytes": kept.optimizer_bytes}),  # the first update makes it
        kept_gradient_bytes=kept.gradient_bytes,
        traffic=[
            Traffic(kind=found.kind, calls=found.calls, payload_bytes=found.payload_bytes) for found in counter.counted
        ],
    )
