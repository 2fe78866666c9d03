"""Loading sharded parameters that have fewer rows than there are ranks.

FSDP1 gives the last ranks no part of such a parameter. PyTorch's load planner, as it is by default, drops what has no
part before it looks for keys, takes the keys that are missing then for those of a checkpoint of PyTorch 2.3, and ends
with "Missing key in checkpoint state_dict: optimizer.param_groups" (2.6 to 2.13,
`torch/distributed/checkpoint/default_planner.py`). It drops them for meshes of two dimensions, which FSDP1 is not
given here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner


def load_planner() -> DefaultLoadPlanner:
    """A planner for which a rank without a part of a parameter still knows the parameter."""
    return DefaultLoadPlanner(flatten_sharded_tensors=False)


@contextmanager
def planners_that_know() -> Iterator[None]:
    """While accelerate loads: the planners it builds by their defaults are like `load_planner`."""
    built = DefaultLoadPlanner.__init__

    def knowing(
        self: DefaultLoadPlanner,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = False,
        allow_partial_load: bool = False,
    ) -> None:
        built(self, flatten_state_dict, flatten_sharded_tensors, allow_partial_load)

    DefaultLoadPlanner.__init__ = knowing  # type: ignore[method-assign]
    try:
        yield
    finally:
        DefaultLoadPlanner.__init__ = built  # type: ignore[method-assign]
