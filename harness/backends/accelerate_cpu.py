"""FSDP through accelerate on CPU. The one place that changes accelerate.

accelerate (1.15, `AcceleratorState.__init__`) takes an FSDP plugin for GPUs and their like alone: on CPU it drops it
without a word and the Trainer runs DDP, with the same losses. FSDP itself works on gloo, so what the state does for
a GPU is done here for the CPU. Nothing is changed where there is an accelerator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def fsdp_on_cpu() -> Iterator[None]:
    """While an `Accelerator` is being built: its state keeps the FSDP plugin it is given, on CPU too."""
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    built = AcceleratorState.__init__

    def keeping_the_plugin(self: Any, *args: Any, fsdp_plugin: Any = None, **named: Any) -> None:
        built(self, *args, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is None or self.distributed_type != DistributedType.MULTI_CPU:
            return
        if self._mixed_precision != "no":
            fsdp_plugin.set_mixed_precision(self._mixed_precision)
        self.fsdp_plugin = fsdp_plugin
        self.distributed_type = DistributedType.FSDP
        self.device = torch.device("cpu")  # with an index FSDP1 refuses it
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        PartialState._shared_state["device"] = self.device

    AcceleratorState.__init__ = keeping_the_plugin
    try:
        yield
    finally:
        AcceleratorState.__init__ = built
