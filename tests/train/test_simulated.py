"""`harness.simulate` against real ranks: launched now, not recorded."""

from __future__ import annotations

import warnings

import pytest
from stack_runs import backend_cell, together

from harness.backends.options import DeepSpeedOptions
from harness.plan import Cell
from harness.simulate.records import VARIANTS, Counted

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

GROUPS = [("ddp", "fsdp", "fsdp2", "fsdp2-root"), ("zero1", "zero2", "zero3")]
"""Each in one process group; ZeRO-3 last, since it replaces `torch.nn.functional.linear`."""


def simulated(cell: Cell) -> Counted:
    if isinstance(cell.backend, DeepSpeedOptions):
        from harness.simulate.worker import count_apart

        return count_apart(cell)
    from harness.simulate.engines import count

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return count(cell)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("names", GROUPS, ids=["torch", "zero"])
def test_real_ranks_hold_and_send_what_was_simulated(names, ranks, tmp_path):
    """Warm-up is long enough for the counted step to be like all later ones."""
    settings = {"ranks": ranks, "micro_batch": 2, "accumulation": 2}
    cells = {name: backend_cell("ddp", VARIANTS[name].model_dump(), **settings) for name in names}
    done = together(tmp_path, cells, steps=6, warmup_steps=4)
    for name, cell in cells.items():
        real, ours = done[name].figures, simulated(cell)
        assert [one.model_dump() for one in ours.traffic] == [one.model_dump() for one in real.collectives], name
        held = real.memory.shards[0]
        assert ours.shard.parameter_bytes == held.parameter_bytes, name
        assert ours.shard.optimizer_bytes == held.optimizer_bytes, name
        assert ours.kept_gradient_bytes == held.gradient_bytes, name
