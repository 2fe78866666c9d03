"""The learning rate as a function of the step."""

from __future__ import annotations

import math

from harness.suite import Optimizer


def learning_rate(optimizer: Optimizer, step: int, steps: int) -> float:
    """The rate of step `step` (from 0) in a training of `steps`.

    Linear warm-up that reaches `lr` at the last warm-up step; then constant, or half a cosine (Loshchilov and
    Hutter, arXiv 1608.03983, without restarts) that ends at `final_lr_share · lr` with the last step.
    """
    if step < optimizer.warmup_steps:
        return optimizer.lr * (step + 1) / optimizer.warmup_steps
    if optimizer.schedule == "constant":
        return optimizer.lr
    span = max(1, steps - 1 - optimizer.warmup_steps)
    progress = min(1.0, (step - optimizer.warmup_steps) / span)
    share = optimizer.final_lr_share
    return optimizer.lr * (share + (1 - share) * 0.5 * (1 + math.cos(math.pi * progress)))
