"""DeepSpeed's ZeRO by formula, for models whose real engine does not fit one process.

With T bytes of trained parameters in float32, p in the model's dtype, and a micro-batches per step, DeepSpeed 0.19.8
sends (payloads; read from its code and counted at small size):

- stages 1 and 2: after the update, one all-gather of p. Gradients by all-reduce of T: stage 1 once per step, stage 2
  once per micro-batch. It is an all-reduce and no reduce-scatter, since `use_multi_rank_bucket_allreduce` is on.
- stage 3: in each micro-batch, an all-gather of p in the forward and, where the model has more elements than
  `max_live_parameters`, again in the backward; a reduce-scatter of T.

The norm of the gradients and padding to a multiple of the ranks are left out, a few bytes each.
"""

from __future__ import annotations

from harness.backends.footprint import Precision, Strategy, static_bytes
from harness.backends.options import DeepSpeedOptions
from harness.simulate.records import Counted, Traffic

_STRATEGIES: dict[int, Strategy] = {1: "zero1", 2: "zero2", 3: "zero3"}


def by_formula(
    options: DeepSpeedOptions, precision: Precision, parameters: int, trainable: int, ranks: int, accumulation: int
) -> Counted:
    """Of one rank; `parameters` and `trainable` are numbers of elements."""
    gathered, reduced = (2 if precision == "bf16" else 4) * trainable, 4 * trainable
    if options.zero_stage == 3:
        times = accumulation * (1 if trainable <= options.max_live_parameters else 2)
        traffic = [
            Traffic(kind="all_gather", calls=None, payload_bytes=times * gathered),
            Traffic(kind="reduce_scatter", calls=None, payload_bytes=accumulation * reduced),
        ]
    else:
        times = accumulation if options.zero_stage == 2 else 1
        traffic = [
            Traffic(kind="all_gather", calls=None, payload_bytes=gathered),
            Traffic(kind="all_reduce", calls=None, payload_bytes=times * reduced),
        ]
    shard = static_bytes(_STRATEGIES[options.zero_stage], precision, parameters, trainable, ranks)
    return Counted(method="formula", shard=shard, kept_gradient_bytes=None, traffic=traffic)
