"""DeepSpeed's ZeRO by formula, for models whose real engine does not fit one process.

With T bytes of trained parameters in float32, p in the model's dtype, and a micro-batches per step, DeepSpeed 0.19.8
sends (payloads; read from its code and counted at small size):

- stages 1 and 2: after the update, one all-gather of p. Gradients by all-reduce of T: stage 1 once per step, stage 2
  once per micro-batch. It is an all-reduce and no reduce-scatter, since `use_multi_rank_bucket_allreduce` is on.
- stage 3: in each micro-batch, an all-gather of p in the forward, and in the backward of those again that were given
  up: a parameter stays that is needed again within `stage3_max_reuse_distance` elements, 10^9 unless told otherwise
  (`PartitionedParameterCoordinator`). The way there and back is twice as long, so half of that stays at least, and
  all of it at most: the formula takes the half, which bounds from above what is sent. A reduce-scatter of T.

The norm of the gradients and padding to a multiple of the ranks are left out, a few bytes each.
"""

from __future__ import annotations

from harness.backends.footprint import Precision, static_bytes, strategy_of
from harness.backends.options import DeepSpeedOptions
from harness.plan import Cell
from harness.simulate.records import Counted, Traffic
from harness.simulate.shapes import elements, shapes_of

REUSE_DISTANCE = 10**9
"""DeepSpeed's default, in elements."""


def by_formula(cell: Cell) -> Counted:
    """Of one rank."""
    options, shapes = cell.backend, shapes_of(cell)
    assert isinstance(options, DeepSpeedOptions)
    parameters, trainable = elements(shapes.all), elements(shapes.trained)
    shard = static_bytes(strategy_of(options), cell.precision, parameters, trainable, cell.ranks)
    traffic = traffic_of(options, cell.precision, trainable, cell.accumulation)
    return Counted(method="formula", shard=shard, kept_gradient_bytes=None, traffic=traffic)


def traffic_of(options: DeepSpeedOptions, precision: Precision, trainable: int, accumulation: int) -> list[Traffic]:
    """Of a step, where so many elements train."""
    gathered, reduced = (2 if precision == "bf16" else 4) * trainable, 4 * trainable
    if options.zero_stage == 3:
        again = gathered * max(0, trainable - REUSE_DISTANCE // 2) // trainable
        return [
            Traffic(kind="all_gather", calls=None, payload_bytes=accumulation * (gathered + again)),
            Traffic(kind="reduce_scatter", calls=None, payload_bytes=accumulation * reduced),
        ]
    times = accumulation if options.zero_stage == 2 else 1
    return [
        Traffic(kind="all_gather", calls=None, payload_bytes=gathered),
        Traffic(kind="all_reduce", calls=None, payload_bytes=times * reduced),
    ]
