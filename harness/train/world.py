"""A rank's place among the ranks: its device, and what it does together with the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from harness.errors import MachineFault
from harness.train.local_barrier import LocalBarrier


@dataclass(frozen=True)
class World:
    rank: int
    ranks: int
    device: torch.device
    barrier: LocalBarrier | None = None
    """When all ranks are on one host; those of several meet in collectives."""

    @classmethod
    def present(cls, device: torch.device, timeout_seconds: float) -> World:
        """Of the process group there is. Every rank calls it at the same point.

        Args:
            timeout_seconds: how long a rank waits for its peers.
        """
        rank, ranks, barrier = dist.get_rank(), dist.get_world_size(), None
        if ranks == int(os.environ["LOCAL_WORLD_SIZE"]):
            barrier = LocalBarrier(rank, ranks, _from_rank_0, timeout_seconds)
        return cls(rank, ranks, device, barrier)

    def synchronise(self) -> None:
        """Returns when all ranks have come here with all their device work done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self.barrier is not None:
            self.barrier.mean(0.0)
        elif self.device.type == "cuda":
            dist.barrier(device_ids=[self.device.index])
            torch.cuda.synchronize(self.device)
        else:
            dist.barrier()

    def mean(self, value: Tensor) -> float:
        """Mean of a float32 scalar over ranks, added up in float64."""
        if self.barrier is not None:
            return self.barrier.mean(float(value))
        total = value.double()
        dist.all_reduce(total)
        return float(total) / self.ranks

    def gather(self, text: str) -> list[str]:
        """Everybody's text, in order of rank, on every rank."""
        found: list[str | None] = [None] * self.ranks
        dist.all_gather_object(found, text)
        return [item for item in found if item is not None]


@contextmanager
def joined(collective_timeout_seconds: float) -> Iterator[World]:
    """The process group torchrun's environment describes: nccl with a GPU per local rank, else gloo on the CPU.

    Left in good order when the body ends well. After an exception the group is not torn down: its peers may be gone,
    and the process is about to end.

    Raises:
        MachineFault: there are GPUs, but fewer than local ranks.
    """
    local_rank, cuda = int(os.environ["LOCAL_RANK"]), torch.cuda.is_available()
    if cuda and local_rank >= torch.cuda.device_count():
        raise MachineFault(f"local rank {local_rank} needs a GPU of its own; there are {torch.cuda.device_count()}")
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        timeout=timedelta(seconds=collective_timeout_seconds),
        device_id=device if cuda else None,
    )
    world = World.present(device, collective_timeout_seconds)
    yield world
    world.synchronise()
    if world.barrier is not None:
        world.barrier.close()
    dist.destroy_process_group()


def _from_rank_0(text: str) -> str:
    given: list[Any] = [text]
    dist.broadcast_object_list(given)
    return str(given[0])
