"""Collectives are counted, not guessed: FSDP2 over a simulated world of eight, and single calls of known size."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from harness.backends import build_engine
from harness.data.dataset import Batches, open_dataset
from harness.models import build, input_shape
from harness.plan import Cell
from harness.suite import Data
from harness.train.comm import CollectiveCounter
from harness.train.facts import Collectives

RANKS = 8


@pytest.fixture(scope="module", autouse=True)
def world():
    """A process group whose collectives move nothing."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_calls_and_payloads_by_kind():
    whole, part = torch.zeros(RANKS * 3), torch.zeros(3)
    with CollectiveCounter() as counter:
        dist.all_reduce(part)
        dist.all_reduce(part.double())
        dist.all_gather_into_tensor(whole, part)
        dist.all_gather([torch.zeros(3) for _ in range(RANKS)], part)
        dist.reduce_scatter_tensor(part, whole)
        dist.broadcast(part, 0)
        dist.barrier()
    assert counter.counted == [
        Collectives(kind="all_gather", calls=2, payload_bytes=2 * 4 * 3 * RANKS),
        Collectives(kind="all_reduce", calls=2, payload_bytes=4 * 3 + 8 * 3),
        Collectives(kind="broadcast", calls=1, payload_bytes=4 * 3),
        Collectives(kind="reduce_scatter", calls=1, payload_bytes=4 * 3 * RANKS),
    ]


def test_wire_bytes_of_a_ring():
    gathered = Collectives(kind="all_gather", calls=1, payload_bytes=800)
    assert gathered.wire_bytes(8) == 700
    assert gathered.model_copy(update={"kind": "all_reduce"}).wire_bytes(8) == 1400
    assert gathered.wire_bytes(1) == 0


@pytest.fixture(scope="module")
def tiny() -> tuple[Batches, int, int]:
    """Batches, the bytes of all parameters, and of the trained ones."""
    dataset = open_dataset(Data(source="synthetic"), None, input_shape("pi0", "tiny"))
    with torch.device("meta"):
        parameters = list(build("pi0", "tiny").parameters())
    trained = sum(4 * parameter.numel() for parameter in parameters if parameter.requires_grad)
    return Batches(dataset, 0, 0, RANKS, 2, 1), sum(4 * parameter.numel() for parameter in parameters), trained


@pytest.mark.parametrize(
    ("options", "gathers", "gathered"),
    [({}, 5, 2.0), ({"reshard_after_forward": False}, 3, 1.0), ({"wrap": "root"}, 1, 1.0)],
)
def test_fsdp2_gathers_layers_twice_and_scatters_once(tiny, options, gathers, gathered):
    """Two layers and the root: the root is gathered once, a layer again for its backward if it was resharded."""
    batches, size, trained = tiny
    cell = Cell.model_validate(
        {"label": "x", "model": "pi0", "size": "tiny", "ranks": RANKS, "micro_batch": 2,
         "backend": {"backend": "fsdp2", **options}, "data": {"source": "synthetic"}}
    )  # fmt: skip
    engine = build_engine(build("pi0", "tiny"), cell, torch.device("cpu"))
    for step in range(2):
        with CollectiveCounter() as counter:
            engine.backward(batches.at(step, 0), last=True)
            engine.step(1e-3)
    counted = {found.kind: found for found in counter.counted}
    scatters = 1 if "wrap" in options else 3
    assert (counted["all_gather"].calls, counted["reduce_scatter"].calls) == (gathers, scatters)
    padded = 1.05  # parameters are padded to a multiple of the ranks
    assert trained <= counted["reduce_scatter"].payload_bytes <= padded * trained
    assert size <= counted["all_gather"].payload_bytes <= padded * gathered * size
    assert counted["all_reduce"].calls == 1  # norms of the gradients, one float32 each
    assert counted["all_reduce"].payload_bytes % 4 == 0 < counted["all_reduce"].payload_bytes < 0.01 * size
