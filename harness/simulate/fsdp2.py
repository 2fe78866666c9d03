"""FSDP2 by formula: what `fully_shard` makes of a model's shapes, without running it.

Every parameter is cut along its first dimension into as many equal pieces as there are ranks; what the last ones lack
is padding. So of a parameter of d rows of r elements, W ranks hold ceil(d / W) · r each, and W times that travels. A
step of a micro-batches (PyTorch 2.13, read from `torch/distributed/fsdp/_fully_shard` and counted):

- all-gathers: the root's own parameters once per micro-batch, since they stay until the backward; those of each layer
  twice, since they are given up after the forward. With the whole model as one unit that is the root.
- reduce-scatters in float32: every unit with trained parameters once, in the last micro-batch.
- one all-reduce: the norm of each trained parameter's gradient, in float32.

A rank holds float32 pieces of parameters and gradients, Adam's two moments of what trains and a step count for each
trained parameter. Every model here trains in each of its layers; one whose layers are frozen gathers less.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.backends.options import Fsdp2Options
from harness.plan import Cell
from harness.simulate.records import Counted, Traffic
from harness.simulate.shapes import Piece, shapes_of
from harness.train.facts import ShardBytes


def by_formula(cell: Cell) -> Counted:
    """Of the first rank of a cell with options of `VARIANTS`: no replicas, no offload, resharding as PyTorch likes."""
    options = cell.backend
    assert isinstance(options, Fsdp2Options)
    shapes = shapes_of(cell)
    root, layers = (shapes.root, shapes.layers) if options.wrap == "layers" else (shapes.all, ())
    held, trained = _cut(shapes.all, cell.ranks), _cut(shapes.trained, cell.ranks)
    gathered = _cut(root, cell.ranks) + 2 * sum(_cut(layer, cell.ranks) for layer in layers)
    width = 2 if cell.precision == "bf16" else 4
    gathers = bool(root) + 2 * len(layers)
    scatters = sum(any(piece.trains for piece in unit) for unit in (root, *layers))
    traffic = [
        Traffic(
            kind="all_gather",
            calls=cell.accumulation * gathers,
            payload_bytes=cell.accumulation * width * cell.ranks * gathered,
        ),
        Traffic(kind="all_reduce", calls=1, payload_bytes=4 * len(shapes.trained)),
        Traffic(kind="reduce_scatter", calls=scatters, payload_bytes=4 * cell.ranks * trained),
    ]
    shard = ShardBytes(
        parameter_bytes=4 * held,
        gradient_bytes=4 * trained,
        optimizer_bytes=8 * trained + 4 * len(shapes.trained),
    )
    return Counted(method="formula", shard=shard, kept_gradient_bytes=0, traffic=traffic)


def _cut(pieces: Iterable[Piece], ranks: int) -> int:
    return sum(piece.cut(ranks) for piece in pieces)
