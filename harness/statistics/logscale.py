"""The way back from the log scale. Bounds from two or three processes at a strict rate can be astronomic."""

from __future__ import annotations

import math

LARGEST_LOG = 700.0
"""exp(±700) ≈ 1e±304 are the last round values that a float holds without overflow or a zero."""


def ratio_of(log_ratio: float) -> float:
    """`exp(log_ratio)`, positive and finite for every input: kept within exp(±`LARGEST_LOG`).

    A bound that far out says "not bounded by this sample", and no effect anyone asks about lies beyond it.

    Raises:
        ValueError: `log_ratio` is NaN.
    """
    if math.isnan(log_ratio):
        raise ValueError("the log of a ratio is NaN")
    return math.exp(max(-LARGEST_LOG, min(log_ratio, LARGEST_LOG)))
