"""Starting process groups and waiting for their records, alone or in turns. Never imports torch.

A crash, an out-of-memory kill or a hang takes the ranks of one group with it and nothing else.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import wait

from harness.machine import Fingerprint
from harness.train.agent import Hosts
from harness.train.ending import read_steps
from harness.train.group import ProcessGroup
from harness.train.journal import latest_checkpoint
from harness.train.records import Failure, InTurns, Outcome, RunRecord, RunSpec, StepRow
from harness.train.turns import Turns

__all__ = ["latest_checkpoint", "launch", "launch_in_turns", "read_steps"]

WORKER = "harness.train.worker"
_LOOK_SECONDS = 0.5
"""Between two looks at a group that runs: they cost processor time beside the steps that are being timed."""
_START_SECONDS = 120.0
"""What importing and building may take before the first step, on top of `hang_seconds`; a busy machine is slow. As
many times more for groups that start together."""


def launch(
    spec: RunSpec,
    fingerprint: Fingerprint,
    *,
    hang_seconds: float,
    on_step: Callable[[StepRow], None],
    worker: str = WORKER,
    hosts: Hosts | None = None,
) -> RunRecord:
    """Runs one fresh process group to its end and records it in the attempt's folder, `run.json` last.

    Args:
        hang_seconds: without a sign of life from any rank for this long, the run counts as HUNG and is ended. Before
            the first step two minutes more are granted, for importing and building.
        on_step: called with each step once all ranks have finished it (the slowest rank's times).
        worker: module each rank runs, with the path of `spec.json` as its argument.
        hosts: over which the ranks are spread evenly, node by node; None: all are here. A host that is lost ends the
            run as CRASHED.

    Raises:
        KeyboardInterrupt: passed on, after the ranks were stopped and the run was recorded as INTERRUPTED.
        DiskFull: a record could not be written. No process is left behind.
    """
    return launch_in_turns(
        [spec], fingerprint, hang_seconds=hang_seconds, on_step=lambda _, row: on_step(row), worker=worker, hosts=hosts
    )[0]


def launch_in_turns(
    specs: Sequence[RunSpec],
    fingerprint: Fingerprint,
    *,
    hang_seconds: float,
    on_step: Callable[[int, StepRow], None],
    worker: str = WORKER,
    hosts: Hosts | None = None,
) -> list[RunRecord]:
    """Runs fresh process groups that start together and then run a few steps each, in turn (`harness.train.turns`).

    What one of them ends with is its own affair: the others go on. Each is recorded as soon as it has ended.

    Args:
        specs: runs with the same `block`, or a single run, which then has the machine to itself. Turns are given
            through a socket of this host, so over several hosts there is a single run only.
        hang_seconds: as in `launch`; a group that waits for its turn does not age.
        on_step: called with the place in `specs` and the step.

    Raises: as `launch`, for all groups.
    """
    turns = Turns([spec.run.cell.ranks for spec in specs]) if len(specs) > 1 else None
    start_seconds = _START_SECONDS * len(specs)
    groups: list[ProcessGroup] = []
    try:
        for spec in _made_ready(specs, turns, hang_seconds + start_seconds):
            groups.append(ProcessGroup(spec, worker, fingerprint, hang_seconds, start_seconds, hosts))
        while running := [place for place, group in enumerate(groups) if group.record is None]:
            _until_the_next_look([groups[place] for place in running], turns)
            for place in running:
                waits = turns is not None and turns.waits(place)
                groups[place].look(partial(on_step, place), waits)
                if turns is not None and groups[place].record is not None:
                    turns.leave(place)
    except KeyboardInterrupt:
        _stop_all(groups)
        for group in groups:
            if group.record is None:
                why = Failure(reason="interrupted by the user", rank=None, exit_code=None, traceback=None)
                group.conclude(Outcome.INTERRUPTED, why)
        raise
    finally:
        _stop_all(groups)
        if turns is not None:
            turns.close()
    return [group.record for group in groups if group.record is not None]


def _until_the_next_look(groups: Sequence[ProcessGroup], turns: Turns | None) -> None:
    """Gives turns for so long, or until a group's torchrun has ended."""
    due = time.monotonic() + _LOOK_SECONDS
    ends = [group.ending for group in groups if group.ending is not None]
    asked = [*ends, *([turns.fileno()] if turns else [])]
    while (left := due - time.monotonic()) > 0:
        ready = wait(asked, left)
        if any(end in ready for end in ends):
            return
        if ready and turns is not None:
            turns.serve(0)


def _made_ready(specs: Sequence[RunSpec], turns: Turns | None, patience: float) -> Iterator[RunSpec]:
    """The orders as the ranks get them."""
    block = uuid.uuid4().hex
    for place, spec in enumerate(specs):
        # Ranks must not give up on each other before the launcher has seen the hang and taken their stacks.
        changes: dict[str, object] = {"collective_timeout_seconds": 2 * patience}
        if turns is not None:
            steps = spec.run.turn_steps or spec.run.steps
            keys = [each.run.key for each in specs]
            changes["in_turns"] = InTurns(block=block, runs=keys, turn_steps=steps)
            changes["baton"] = turns.address(place)
        yield spec.model_copy(update=changes)


def _stop_all(groups: Sequence[ProcessGroup]) -> None:
    running = [group for group in groups if group.record is None]
    for group in running:
        group.ask_to_stop()
    for group in running:
        group.stop()
