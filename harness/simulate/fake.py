"""A world of many ranks in one process: collectives that move nothing, tensors that hold nothing."""

# No `from __future__ import annotations` here: DDP reads those of its communication hook.
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from harness.errors import MachineFault


@contextmanager
def fake_world(ranks: int) -> Iterator[None]:
    """The default process group is PyTorch's `fake` one, seen from rank 0. There must be none before.

    Raises:
        MachineFault: this PyTorch (2.6 is one) has no collectives on `meta`.
    """
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        yield
    except NotImplementedError as error:
        if "c10d::" not in str(error):
            raise
        raise MachineFault(f"torch {torch.__version__} has no collectives on `meta` to simulate with") from error
    finally:
        dist.destroy_process_group()


class NoValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets a training step pass the places where it reads a value out of a tensor that has none.

    A scalar reads as 1.0 (gradient norms); a copy from `meta` to the host leaves the host's tensor as it is (DDP's
    reducer asks rank 0 for the order of its buckets, and this is rank 0).
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return 1.0
        if func is torch.ops.aten.copy_.default and args[1].is_meta and not args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


def without_storage(model: nn.Module, mode: FakeTensorMode) -> None:
    """Puts fake tensors of `mode`, which claim to be on the CPU, in the place of a model's `meta` ones, in place."""
    fakes: dict[int, Any] = {}

    def fake(tensor: Tensor) -> Any:
        if id(tensor) not in fakes:
            empty = torch.empty_like(tensor, device="cpu")
            is_parameter = isinstance(tensor, nn.Parameter)
            fakes[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
        return fakes[id(tensor)]

    with mode:
        # Not `to_empty`: it swaps tensors, which cannot be done to those that others refer to weakly.
        for module in model.modules():
            for own in (module._parameters, module._buffers):
                for name, tensor in own.items():
                    if tensor is not None:
                        own[name] = fake(tensor)


def first_piece(tensor: Tensor, pieces: int, dim: int) -> list[Tensor]:
    """In the place of FSDP2's own cutting (`_chunk_with_empty`): the first rank's piece, and not as many as ranks.

    Rank 0 looks at no other one, and a fake tensor takes a good part of a millisecond to make: for each parameter of
    a model on 1,024 ranks that comes to minutes.
    """
    return [tensor.narrow(dim, 0, min(-(-tensor.size(dim) // pieces), tensor.size(dim)))]


class StandInDdp(DistributedDataParallel):
    """DDP on `meta`: no weights are compared or sent at the start, and an all-reduce is over once it is begun."""

    def __init__(self, module: nn.Module, **settings: Any) -> None:
        if "init_sync" in signature(DistributedDataParallel).parameters:  # since torch 2.7
            settings["init_sync"] = False
        super().__init__(module, **settings)
        self.register_comm_hook(None, _all_reduce)


def _all_reduce(_state: object, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
    """As DDP's own hook, but with a future of its own: the fake group's holds no tensor."""
    buffer = bucket.buffer()
    done: Future[Tensor] = Future()
    dist.all_reduce(buffer)
    done.set_result(buffer)
    return done
