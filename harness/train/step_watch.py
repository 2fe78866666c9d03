"""What is noted of a step while it is made: its time, where that went, its energy, whether anything was compiled."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass

import torch

from harness.train.energy import EnergyCounter
from harness.train.meter import Lap, Stopwatch
from harness.train.phases import PhaseClock, PhaseSeconds
from harness.train.world import World


@dataclass(frozen=True)
class StepLap(Lap):
    """One step of one rank, between two moments at which all ranks stand still together."""

    phases: PhaseSeconds
    joules: float | None
    """Of this rank's GPU; None where nothing counts it."""
    compiled: bool
    """torch.compile made a graph, or a C++ extension was built."""


class StepWatch:
    """`start` and `stop` are the ends of the timed region on every stack: all ranks stand still, device work done.

    Attributes:
        phases: to be told when a forward or a backward has ended (`Engine.split`).
    """

    def __init__(self, world: World) -> None:
        self._world, self._stopwatch = world, Stopwatch()
        self._energy = _energy_counter(world.device)
        self.phases = PhaseClock.on(world.device)

    def start(self) -> None:
        self._compiled, self._joules = compilations(), self._joules_so_far()
        self._world.synchronise()
        self._stopwatch.start()
        self.phases.begin()

    def stop(self) -> StepLap:
        self.phases.ended("optimizer")
        self._world.synchronise()
        lap = self._stopwatch.stop()
        before, now = self._joules, self._joules_so_far()
        return StepLap(
            wall_seconds=lap.wall_seconds,
            cpu_seconds=lap.cpu_seconds,
            phases=self.phases.read(),
            joules=None if before is None or now is None else now - before,
            compiled=compilations() > self._compiled,
        )

    def _joules_so_far(self) -> float | None:
        with contextlib.suppress(OSError):
            return self._energy.joules() if self._energy is not None else None
        return None


def _energy_counter(device: torch.device) -> EnergyCounter | None:
    if device.type != "cuda":
        return None
    with contextlib.suppress(OSError):
        return EnergyCounter(str(torch.cuda.get_device_properties(device).uuid))
    return None


def compilations() -> int:
    """Graphs that torch.compile has made in this process, and C++ extensions that it has built or loaded (DeepSpeed's
    operators among them)."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    extensions = sys.modules.get("torch.utils.cpp_extension")
    graphs = 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])
    return graphs + (0 if extensions is None else len(extensions.JIT_EXTENSION_VERSIONER.entries))
