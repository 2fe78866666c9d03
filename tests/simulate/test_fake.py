"""A world that is not there."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from harness.errors import MachineFault
from harness.simulate.fake import fake_world


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("c10d::allgather_: attempted to run this operator with Meta tensors", MachineFault),
        ("else", NotImplementedError),
    ],
)
def test_a_torch_without_collectives_on_meta_is_said_to_be_one(words, kind):
    with pytest.raises(kind, match=r"no collectives|else"), fake_world(4):
        assert dist.get_world_size() == 4
        raise NotImplementedError(words)
    assert not dist.is_initialized()
