"""A profile of a few steps more, made when everything that is measured has been measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch.profiler import ProfilerActivity, profile

from harness.backends.base import Engine
from harness.train.facts import PhasePeaks
from harness.train.loop import Steps
from harness.train.memory import read_peaks, reset_peaks
from harness.train.schedule import learning_rate

TRACED_STEPS = 2
TRACES = "trace"
_COMMUNICATION = "nccl"
"""What names of NCCL's kernels have in common (`ncclDevKernel_AllGather_RING_LL` …)."""


class Span(NamedTuple):
    """Begin and end on one clock, in any unit."""

    begin: float
    end: float


class Traced(NamedTuple):
    """What a trace on CUDA tells; both None on CPU, where a collective is carried out by the threads that compute."""

    exposed_share: float | None
    phase_peaks: PhasePeaks | None


def trace_steps(engine: Engine, steps: Steps, folder: Path) -> Traced:
    """Makes two steps beyond the run's last under PyTorch's profiler; `trace/rank-<r>.json` opens in Perfetto.

    They are in no row and no figure. The weights are not the run's any more afterwards.

    Args:
        folder: the attempt's.
    """
    run, world = steps.run, steps.world
    on_cuda = world.device.type == "cuda"
    peaks: list[int | None] = []
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    with profile(activities=activities) as profiler:
        for step in range(run.steps, run.steps + TRACED_STEPS):
            batches, _ = steps.fetch(step)
            reset_peaks(world.device)
            for number, batch in enumerate(batches, 1):
                engine.backward(batch, last=number == len(batches))
            peaks.append(read_peaks(world.device).allocated_bytes)
            reset_peaks(world.device)
            engine.step(learning_rate(run.cell.optimizer, step, run.steps))
            peaks.append(read_peaks(world.device).allocated_bytes)
        world.synchronise()
    file = folder / TRACES / f"rank-{world.rank}.json"
    file.parent.mkdir(exist_ok=True)
    profiler.export_chrome_trace(str(file))
    if not on_cuda:
        return Traced(None, None)
    forward_backward, update = (max(peak or 0 for peak in peaks[phase::2]) for phase in (0, 1))
    return Traced(
        exposed_share_of_trace(json.loads(file.read_text())["traceEvents"]),
        PhasePeaks(forward_backward_bytes=forward_backward, update_bytes=update),
    )


def exposed_share_of_trace(events: Iterable[dict[str, Any]]) -> float | None:
    """From the kernels of a Chrome trace; None when there are none."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    spans = [Span(event["ts"], event["ts"] + event["dur"]) for event in kernels]
    moves = [_COMMUNICATION in event["name"].lower() for event in kernels]
    return exposed_share(
        [span for span, communicates in zip(spans, moves, strict=True) if communicates],
        [span for span, communicates in zip(spans, moves, strict=True) if not communicates],
    )


def exposed_share(communication: Sequence[Span], compute: Sequence[Span]) -> float | None:
    """Time in which communication runs and no computation does, over the time from first begin to last end."""
    every = [*communication, *compute]
    if not every:
        return None
    window = max(span.end for span in every) - min(span.begin for span in every)
    both = _length([*communication, *compute]) - _length(compute)
    return both / window if window > 0 else 0.0


def _length(spans: Sequence[Span]) -> float:
    """Of the union."""
    total, reached = 0.0, float("-inf")
    for span in sorted(spans):
        total += max(0.0, span.end - max(span.begin, reached))
        reached = max(reached, span.end)
    return total
