"""Where the time of a step goes on one rank: forward, backward, the rest up to the end of the update.

A mark is a look at the clock on the CPU, and an event in the stream on CUDA: nothing is synchronised for it, so that
the split does not change what it splits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Phase = Literal["forward", "backward", "optimizer"]


@dataclass(frozen=True)
class PhaseSeconds:
    """Of one rank's step, summed over micro-batches. The wait for other ranks at the end is in none of them."""

    forward: float
    backward: float
    optimizer: float
    """Clipping, update, clearing of gradients."""


class PhaseClock:
    """Told when a step begins and when each of its phases has ended."""

    def __init__(
        self,
        instant: Callable[[], Any] = time.perf_counter,
        seconds_between: Callable[[Any, Any], float] = lambda earlier, later: float(later - earlier),
    ) -> None:
        """
        Args:
            instant: the present moment.
            seconds_between: the time from one moment to a later one; asked when the device's work is done.
        """
        self._instant, self._seconds_between = instant, seconds_between
        self._marks: list[tuple[Phase | None, Any]] = []

    @classmethod
    def on(cls, device: torch.device) -> PhaseClock:
        """In the current stream of a CUDA device; by the host's clock elsewhere."""
        if device.type != "cuda":
            return cls()
        import torch

        def event() -> torch.cuda.Event:
            mark = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            mark.record()
            return mark

        return cls(event, lambda earlier, later: float(earlier.elapsed_time(later)) / 1e3)

    def begin(self) -> None:
        self._marks = [(None, self._instant())]

    def ended(self, phase: Phase) -> None:
        """What has passed since the mark before was this phase. Outside of a step nothing is noted."""
        if self._marks:
            self._marks.append((phase, self._instant()))

    def read(self) -> PhaseSeconds:
        """Ends the step. The device must have done its work."""
        seconds: dict[Phase | None, float] = {}
        for (_, earlier), (phase, later) in zip(self._marks, self._marks[1:], strict=False):
            seconds[phase] = seconds.get(phase, 0.0) + self._seconds_between(earlier, later)
        self._marks = []
        return PhaseSeconds(
            forward=seconds.get("forward", 0.0),
            backward=seconds.get("backward", 0.0),
            optimizer=seconds.get("optimizer", 0.0),
        )
