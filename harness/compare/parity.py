"""Do two backends follow the same loss, step by step? A strict opening, then a band for what chaos leaves over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.records import Value
from harness.train.records import StepRow


@dataclass(frozen=True)
class Tolerance:
    """Largest difference of the loss, times max(1, |loss|).

    Attributes:
        opening: steps 0 and 1, before the optimizer's state can amplify anything.
        strict: the rest of the first `STRICT_STEPS`.
    """

    opening: float
    strict: float


TOLERANCES: dict[str, Tolerance] = {
    # Measured over all backends at 2 ranks, AdamW at 1e-3, 20 steps: fp32 at most 1e-6, bf16 with matched
    # settings at most 3.5e-5 at step 1 and 1.2e-3 later. A forgotten clip shows as 2.7e-2.
    "fp32": Tolerance(opening=1e-5, strict=1e-4),
    "bf16": Tolerance(opening=1e-4, strict=5e-3),
}
STRICT_STEPS = 20
BAND = 0.10
"""Relative difference allowed between the mean losses of one block of steps."""
BLOCK_STEPS = 50


class ParityRecord(Value):
    """Two loss curves laid over each other."""

    reference: str
    candidate: str
    kind: Literal["timing", "learning"]
    precision: str
    holds: bool
    compared_steps: int
    first_loss_difference: float | None
    """|candidate - reference| at the first common step."""
    max_difference: float | None
    """Largest such difference within the strict steps."""
    max_block_deviation: float | None
    """Largest relative difference of block means after the strict steps; None when there are none."""
    first_departure: int | None
    """The first step (or first step of the block) out of tolerance."""
    reason: str


class _Finding(Value):
    worst: float | None
    departed_at: int | None


def loss_parity(
    reference_steps: Sequence[StepRow],
    candidate_steps: Sequence[StepRow],
    precision: str,
    reference: str = "reference",
    candidate: str = "candidate",
    kind: Literal["timing", "learning"] = "timing",
) -> ParityRecord:
    """Compares the losses of two runs that saw the same samples and noise.

    Rule: steps 0 and 1 within `opening`, steps up to `STRICT_STEPS` within `strict`. Later, rounding differences
    grow with the trajectory's own instability however right both sides are, so single steps prove nothing:
    means over blocks of `BLOCK_STEPS` must agree within `BAND`. Both sides draw the same samples in the same
    order, hence a block's mean has no sampling noise between them. A loss that is missing (not finite) departs.
    Curves of unequal length never hold.

    Args:
        precision: a key of `TOLERANCES`.
    """
    old = {row.step: row.loss for row in reference_steps}
    new = {row.step: row.loss for row in candidate_steps}
    common = sorted(old.keys() & new.keys())
    pairs = [(step, old[step], new[step]) for step in common]
    strict = _strict(pairs, TOLERANCES[precision])
    blocks = _blocks([pair for pair in pairs if pair[0] >= STRICT_STEPS])
    departed = strict.departed_at if strict.departed_at is not None else blocks.departed_at
    same_length = old.keys() == new.keys() and bool(common)
    return ParityRecord(
        reference=reference,
        candidate=candidate,
        kind=kind,
        precision=precision,
        holds=departed is None and same_length,
        compared_steps=len(common),
        first_loss_difference=_strict(pairs[:1], TOLERANCES[precision]).worst,
        max_difference=strict.worst,
        max_block_deviation=blocks.worst,
        first_departure=departed,
        reason=_reason(departed, same_length, len(common), strict, blocks),
    )


def _strict(pairs: Sequence[tuple[int, float | None, float | None]], tolerance: Tolerance) -> _Finding:
    worst: float | None = None
    departed: int | None = None
    for step, old, new in pairs:
        if step >= STRICT_STEPS:
            break
        if old is None or new is None or not (math.isfinite(old) and math.isfinite(new)):
            departed = step if departed is None else departed
            continue
        difference = abs(new - old)
        worst = difference if worst is None else max(worst, difference)
        allowed = (tolerance.opening if step < 2 else tolerance.strict) * max(1.0, abs(old))
        if difference > allowed and departed is None:
            departed = step
    return _Finding(worst=worst, departed_at=departed)


def _blocks(pairs: Sequence[tuple[int, float | None, float | None]]) -> _Finding:
    worst: float | None = None
    departed: int | None = None
    for start in range(0, len(pairs), BLOCK_STEPS):
        block = pairs[start : start + BLOCK_STEPS]
        old = [loss for _, loss, _ in block if loss is not None and math.isfinite(loss)]
        new = [loss for _, _, loss in block if loss is not None and math.isfinite(loss)]
        whole = len(old) == len(new) == len(block)
        if whole:
            scale = max(abs(math.fsum(old)), 1e-12)
            deviation = abs(math.fsum(new) - math.fsum(old)) / scale
            worst = deviation if worst is None else max(worst, deviation)
        if departed is None and (not whole or deviation > BAND):
            departed = block[0][0]
    return _Finding(worst=worst, departed_at=departed)


def _reason(departed: int | None, same_length: bool, compared: int, strict: _Finding, blocks: _Finding) -> str:
    if compared == 0:
        return "no step was recorded on both sides"
    if departed is not None:
        rule = "the strict tolerance" if departed < STRICT_STEPS else f"the {BAND:.0%} band of block means"
        return f"the losses depart from {rule} at step {departed}"
    if not same_length:
        return f"the curves differ in length; {compared} common steps agree"
    text = f"{compared} steps agree; largest difference {strict.worst or 0.0:.1e} in the first {STRICT_STEPS}"
    return text if blocks.worst is None else f"{text}, block means within {blocks.worst:.1%}"
