"""Collectives of a step: how many, of what kind, how many bytes. Counted from the calls themselves, never estimated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.train.facts import CollectiveKind, Collectives

_KINDS: Mapping[str, CollectiveKind] = {
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
    "send": "send",
    "recv_": "receive",
}
"""Operators of the `c10d` and `_c10d_functional` libraries (PyTorch 2.13, `torch/csrc/distributed/c10d/Ops.cpp` and
`Functional.cpp`). Barriers and waits move no data and are left out."""

_LIBRARIES = ("c10d::", "_c10d_functional::")


class _Count(NamedTuple):
    calls: int
    payload_bytes: int


class CollectiveCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the collectives that this rank starts while the mode is on, those of the backward included.

    A dispatch mode sees every operator from Python and C++ (DDP's reducer among them), on gloo and NCCL alike. It
    slows the step down, so it must never be on in a timed one.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counts: dict[CollectiveKind, _Count] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor takes itself apart first; its collectives come by again on plain tensors
        result = func(*args, **(kwargs or {}))
        library, _, operator = func.name().partition("::")
        kind = _KINDS.get(operator.partition(".")[0]) if f"{library}::" in _LIBRARIES else None
        if kind is not None:
            calls, payload = self._counts.get(kind, _Count(0, 0))
            self._counts[kind] = _Count(calls + 1, payload + _payload_bytes((*args, result)))
        return result

    def start(self) -> None:
        self.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    @property
    def counted(self) -> list[Collectives]:
        """By kind, in alphabetical order."""
        return [
            Collectives(kind=kind, calls=count.calls, payload_bytes=count.payload_bytes)
            for kind, count in sorted(self._counts.items())
        ]


def _payload_bytes(arguments: tuple[Any, ...]) -> int:
    """The larger side of a collective: what an all-gather gives, what a reduce-scatter takes."""
    return max(sum(t.numel() * t.element_size() for t in _tensors(argument)) for argument in arguments)


def _tensors(argument: Any) -> Iterator[Tensor]:
    if isinstance(argument, torch.Tensor):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from _tensors(item)
