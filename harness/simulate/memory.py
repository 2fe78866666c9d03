"""What a step holds on top of its shards, for the estimate of the peak: counted on `meta`, the rest by formula.

Activations are the tensors that autograd keeps of one micro-batch, parameters aside. What is gathered for a time:

- DDP: nothing; in bf16 a copy of all parameters, which lives from the forward to the end of the backward.
- FSDP1, FSDP2: the root's own parameters, which stay after the forward, and two layers', since the next one is
  fetched while one computes; and the gradients of one unit, whole, in float32, on their way to be reduced. With the
  whole model as one unit both are the model.
- ZeRO: one bucket of gradients in float32; stage 3 also `max_live_parameters` or what is kept for its reuse
  (`harness.simulate.zero`), whichever is more, or the model if that is smaller. No bucket splits a parameter, and
  none is gathered in parts: the largest one is the least.

Allocator overhead, kernels' workspaces and what a recomputed layer holds for the time of its backward are left out.
"""

from __future__ import annotations

from itertools import pairwise

from harness.backends.options import DeepSpeedOptions, Fsdp2Options, FsdpOptions
from harness.plan import Cell
from harness.simulate.shapes import elements, shapes_of
from harness.simulate.zero import REUSE_DISTANCE


def gathered_bytes(cell: Cell) -> int:
    """Bytes of whole parameters and of gradients not yet reduced, at the worst moment; see the head of this module."""
    width, options = 2 if cell.precision == "bf16" else 4, cell.backend
    shapes = shapes_of(cell)
    whole, largest = elements(shapes.all), max(piece.elements for piece in shapes.all)
    if isinstance(options, DeepSpeedOptions):
        kept = max(options.max_live_parameters, REUSE_DISTANCE // 2)
        live = max(min(kept, whole), largest) if options.zero_stage == 3 else 0
        return width * live + 4 * max(min(options.reduce_bucket_size, whole), largest)
    if isinstance(options, FsdpOptions | Fsdp2Options):
        layered = options.wrap == "layers"
        root, layers = (elements(shapes.root), [elements(layer) for layer in shapes.layers]) if layered else (whole, [])
        pair = max((sum(two) for two in pairwise(layers)), default=0)
        return width * (root + pair) + 4 * max(root, *layers, 0)
    return 2 * whole if cell.precision == "bf16" else 0
