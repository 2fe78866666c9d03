"""Observes the first optimizer step from inside the forward: what the model really computes with. Of every step it
tells when a forward and a backward end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from harness.backends.modules import recomputed_layers
from harness.models.base import VLA
from harness.train.phases import PhaseClock


@dataclass(frozen=True)
class Observed:
    """Facts of the first optimizer step, as seen by a hook inside the model."""

    parameter_dtype: torch.dtype
    autocast_dtype: torch.dtype | None
    recomputed: bool
    micro_batch: int
    accumulation: int


class Probe:
    """A forward hook on one weight-bearing module of a layer, removed after the first optimizer step.

    Attributes:
        clock: told of the ends of phases, in all steps; None: nobody asks.
    """

    def __init__(self, layer: nn.Module) -> None:
        watched = next(m for m in layer.modules() if any(True for _ in m.parameters(recurse=False)))
        self._weight = next(name for name, _ in watched.named_parameters(recurse=False))
        self._handle = watched.register_forward_pre_hook(self._see)
        self._dtype: torch.dtype | None = None
        self._autocast: torch.dtype | None = None
        self._calls = self._calls_in_forward = self._micro_batch = self._accumulation = 0
        self._observed: Observed | None = None
        self.clock: PhaseClock | None = None

    @classmethod
    def of(cls, model: VLA) -> Probe:
        """On a layer that activation checkpointing would wrap; on the model where there is none.

        On one that trains: a wrapped layer whose output needs no gradient is not computed again.
        """
        trained = (layer for layer in recomputed_layers(model) if any(p.requires_grad for p in layer.parameters()))
        return cls([model, *trained][-1])

    def _see(self, module: nn.Module, _inputs: object) -> None:
        weight = getattr(module, self._weight)  # not a parameter while FSDP1 recomputes, but a view of the gathered one
        self._dtype = weight.dtype
        device = weight.device.type
        casts = device != "meta" and torch.is_autocast_enabled(device)  # on `meta` there is no such question
        self._autocast = torch.get_autocast_dtype(device) if casts else None
        self._calls += 1

    def forward_ended(self, micro_batch: int) -> None:
        if self.clock is not None:
            self.clock.ended("forward")
        if self._observed is None:
            self._calls_in_forward, self._micro_batch = self._calls, micro_batch

    def backward_ended(self) -> None:
        if self.clock is not None:
            self.clock.ended("backward")
        if self._observed is None:
            self._recomputed = self._calls > self._calls_in_forward
            self._accumulation += 1

    def step_ended(self) -> None:
        if self._observed is None:
            if self._dtype is None:
                raise RuntimeError("the first step did not run the watched layer: its profile names an unused class")
            self._observed = Observed(
                self._dtype, self._autocast, self._recomputed, self._micro_batch, self._accumulation
            )
            self._handle.remove()

    @property
    def has_observed(self) -> bool:
        return self._observed is not None

    @property
    def observed(self) -> Observed:
        """Raises RuntimeError before the first step."""
        if self._observed is None:
            raise RuntimeError("what is in force is known only after the first optimizer step")
        return self._observed
