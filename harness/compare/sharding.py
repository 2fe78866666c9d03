"""Does each rank hold its part only? Bytes counted from live tensors, against the formulas of each backend."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from harness.backends.footprint import static_bytes, strategy_of
from harness.backends.options import Fsdp2Options
from harness.compare.results import ended_well
from harness.compare.verdict import Judgement, Verdict
from harness.plan import Cell
from harness.train.facts import ShardBytes
from harness.train.records import RunRecord

SHARE_SLACK = 1.25
"""Padding and small parameters kept whole may make a rank's share this much larger than 1/ranks."""


class Part(NamedTuple):
    """One of the things that a cell divides among its ranks."""

    field: str
    """Of `ShardBytes`."""
    name: str
    share: float
    """What a rank holds between two steps, of the whole."""


_NAMES = {"parameter_bytes": "parameters", "optimizer_bytes": "optimizer state", "gradient_bytes": "gradients"}


def judge_sharding(label: str, runs: list[RunRecord]) -> Judgement | None:
    """Do the ranks hold their share only? None for cells that divide nothing, or without figures.

    A cell passes when no part exceeds its share. Less than a share is no fault: FSDP frees gradients, and plain
    gradient descent has no state.
    """
    run = next((r for r in ended_well(runs) if r.memory and r.workload and r.in_force), None)
    if run is None:
        return None
    assert run.memory and run.workload and run.in_force
    parts = divided(run.run.cell, run.workload.parameters, run.workload.trainable_parameters, run.memory.shards)
    if not parts:
        return None
    pieces = _pieces(run.run.cell, run.in_force.world_size)
    whole = [part for part in parts if part.share > SHARE_SLACK / pieces]
    shown = (whole or parts)[0]
    told = ", ".join(f"{part.share:.0%} of the {part.name}" for part in parts)
    fault = f": this cell does not shard its {', '.join(part.name for part in whole)}" if whole else ""
    return Judgement(
        question="sharding",
        subject=label,
        metric=shown.field,
        verdict=Verdict.INCOMPARABLE if whole else Verdict.PASS,
        value=shown.share,
        reference=1 / pieces,
        n=1,
        reason=f"a rank holds {told}; 1/{pieces} is {1 / pieces:.0%}{fault}",
    )


def divided(cell: Cell, parameters: int, trainable: int, shards: list[ShardBytes]) -> list[Part]:
    """What the backend promises to divide, in order of importance; empty for DDP.

    Of parameters the largest rank counts. Gradients and optimizer state are means over ranks: FSDP1 cuts flat
    parameters, so where a unit has frozen and trained ones, its ranks may hold unequal parts of these.

    Args:
        shards: by rank.
    """
    strategy = strategy_of(cell.backend)
    whole, half = (static_bytes(strategy, cell.precision, parameters, trainable, ranks) for ranks in (1, 2))
    found = []
    for field, name in _NAMES.items():
        size = getattr(whole, field)
        if getattr(half, field) < size:
            held = [getattr(shard, field) for shard in shards]
            found.append(Part(field, name, (max(held) if field == "parameter_bytes" else fmean(held)) / size))
    return found


def _pieces(cell: Cell, ranks: int) -> int:
    """Into how many parts things are cut: groups of ranks with the whole model each (HSDP) cut it among themselves."""
    return ranks // cell.backend.replicas if isinstance(cell.backend, Fsdp2Options) else ranks
