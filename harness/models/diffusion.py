"""Denoising diffusion of action chunks: the noise schedule, noising, and DDIM sampling with guidance.

DDPM (Ho et al., arXiv 2006.11239) with the squared-cosine schedule of Nichol and Dhariwal (arXiv 2102.09672), called
`squaredcos_cap_v2` in their code and in diffusers; DDIM (Song et al., arXiv 2010.02502) without noise (η = 0).
All in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

OFFSET = 0.008
"""s in ᾱ(u) = cos²((u + s)/(1 + s) · π/2) of arXiv 2102.09672, eq. 17."""
LARGEST_BETA = 0.999
"""The same paper's cap, which keeps the last steps from losing everything at once."""


@lru_cache(maxsize=8)
def signal_shares(steps: int) -> Tensor:
    """ᾱ_t, the share of the signal's variance that is left at step t: float32 (steps,) on the CPU, from float64."""

    def share(place: float) -> float:
        return math.cos((place + OFFSET) / (1 + OFFSET) * math.pi / 2) ** 2

    kept = [max(share((t + 1) / steps) / share(t / steps), 1 - LARGEST_BETA) for t in range(steps)]
    # The device is said: operations are counted under a default device of `meta`, and what is kept must hold numbers.
    return torch.tensor(kept, dtype=torch.float64, device="cpu").cumprod(0).float()


def noisy(actions: Tensor, noise: Tensor, share: Tensor) -> Tensor:
    """x_t = √ᾱ·a + √(1−ᾱ)·ε (arXiv 2006.11239, eq. 4).

    Args:
        actions, noise: float32 (B, H, A).
        share: ᾱ of each sample, float32 (B,).
    """
    share = share[:, None, None]
    return share.sqrt() * actions + (1 - share).sqrt() * noise


def guided(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance (Ho and Salimans, arXiv 2207.12598); a scale of 1 is the plain prediction."""
    return unconditional + scale * (conditional - unconditional)


def ddim(predict: Callable[[Tensor, int], Tensor], noise: Tensor, training_steps: int, steps: int) -> Tensor:
    """Goes from noise to actions in `steps` evenly spaced steps (arXiv 2010.02502, eq. 12 with σ = 0).

    Args:
        predict: (x_t, t) → the noise in x_t, both float32 (B, H, A).
        noise: x_T, float32 (B, H, A).
        training_steps: length of the schedule; `steps` divides it. The steps are 0, k, 2k, … ("leading" spacing).
    """
    shares = signal_shares(training_steps)
    stride = training_steps // steps
    point = noise
    for t in range(stride * (steps - 1), -1, -stride):
        here = shares[t].item()
        before = shares[t - stride].item() if t > 0 else 1.0
        found = predict(point, t)
        actions = (point - math.sqrt(1 - here) * found) / math.sqrt(here)
        point = math.sqrt(before) * actions + math.sqrt(1 - before) * found
    return point
