"""Statistics of a set's states and actions, as one model reads them; taken once and kept beside the recordings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from harness.data.poses import relative, tool_frame
from harness.data.recordings import Recordings, Steps
from harness.data.statistics import ACTION_FLOOR, STATE_FLOOR, Statistics, moments
from harness.records import Record, Value
from harness.store import read_record, write_record
from harness.suite import Normalisation, Reading

_SAMPLES_AT_ONCE = 4096
"""So many samples' chunks are in memory together while statistics are taken."""


class Basis(Value):
    """All that statistics depend on."""

    content_sha256: str
    normalisation: Normalisation
    delta_actions: bool
    chunk: int | None
    """Actions per sample; None where actions are counted once each, since none depends on the sample it is in."""


class StatisticsRecord(Record):
    """`statistics-<digest of the basis>.json`."""

    basis: Basis
    statistics: Statistics


def statistics_of(recordings: Recordings, reading: Reading, chunk: int) -> Statistics:
    """Of all states, and of all actions or (`delta_actions`) of all samples' chunks relative to their states.

    Kept beside the recordings, where these are kept: the next run finds them by content hash and settings.
    """
    steps = recordings.steps
    basis = Basis(
        content_sha256=recordings.record.content_sha256,
        normalisation=reading.normalisation,
        delta_actions=reading.delta_actions,
        chunk=chunk if reading.delta_actions else None,
    )
    file = recordings.folder / f"statistics-{basis.digest()}.json" if recordings.folder else None
    if file is not None and file.exists():
        return read_record(file, StatisticsRecord).statistics
    actions = _deltas(steps, chunk) if reading.delta_actions else iter([steps.actions])
    statistics = Statistics(
        state=moments([tool_frame(steps.states)], STATE_FLOOR[: steps.states.shape[1]], reading.normalisation),
        action=moments(actions, ACTION_FLOOR, reading.normalisation),
        delta_actions=reading.delta_actions,
    )
    if file is not None:
        write_record(file, StatisticsRecord(basis=basis, statistics=statistics))
    return statistics


def windows(steps: Steps, samples: NDArray[np.int64], chunk: int) -> NDArray[np.float64]:
    """The actions from each sample on (n, chunk, 7); past the end of the episode its last one is repeated."""
    rows = steps.frame_steps[samples, None] + np.arange(chunk)
    chunks: NDArray[np.float64] = steps.actions[np.minimum(rows, steps.last_steps[samples, None])]
    return chunks


def _deltas(steps: Steps, chunk: int) -> Iterator[NDArray[np.float64]]:
    samples = np.arange(len(steps.states))
    for first in range(0, len(samples), _SAMPLES_AT_ONCE):
        block = samples[first : first + _SAMPLES_AT_ONCE]
        yield relative(windows(steps, block, chunk), steps.states[block]).reshape(-1, steps.actions.shape[1])
