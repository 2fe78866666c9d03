"""Episodes in parallel: simulator processes around one batched policy that lives in the calling process.

A worker that dies or falls silent is replaced and its episode repeated; since an episode depends on its key and the
policy alone, a repeat is the same episode. What still fails after `max_tries` is an error with its reason.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadInput, MachineFault
from harness.libero.pool_worker import Answer, Beat, Brain, Broken, Finished, Stumble, serve
from harness.libero.records import EpisodeRecord, Protocol
from harness.libero.worker import one_thread_each
from harness.plan import EpisodeKey
from harness.policies.base import Chunk, Look, Policy, PolicyFault
from harness.store import write_atomically
from harness.suite import CONTROLS

SILENCE_SECONDS = 300.0
"""A worker that sends nothing for this long hangs. Compiling a scene, the longest silence, takes 5 to 60 s."""

_LINGER_SECONDS = 0.02
"""How long looks wait for others to be batched with. Batching cannot change an answer that keeps to `Policy`."""


@dataclass(frozen=True)
class PoolReport:
    """What an evaluation cost and where it rendered; the episodes themselves go to `on_record`.

    Attributes:
        replaced: workers that died or hung.
        gl_vendor, gl_renderer: None when no episode got as far as a scene.
    """

    episodes: int
    errors: int
    replaced: int
    gl_vendor: str | None
    gl_renderer: str | None


def evaluate(
    arm: str,
    policy_source: Callable[[], Policy] | None,
    episodes: list[EpisodeKey],
    protocol: Protocol,
    *,
    workers: int,
    max_tries: int,
    on_record: Callable[[EpisodeRecord], None],
    actions_folder: Path | None,
) -> PoolReport:
    """Plays every episode once and reports each as it ends.

    Args:
        arm: `expert`, `still`, or the name of a policy.
        policy_source: makes the policy, in this process; None for the controls, which act inside the workers.
        workers: simulator processes; each keeps one scene, so more of them than tasks cost more compiling.
        max_tries: tries before a dying or hanging simulator makes the episode an error.
        on_record: called in this process, in the order of endings.
        actions_folder: gets `actions_name(key)` per episode: `actions`, float64 (steps, 7), as executed.

    Raises:
        BadInput: an arm without a policy that is no control.
        MachineFault: the machine cannot simulate.
    """
    if policy_source is None and arm not in CONTROLS:
        raise BadInput("arm", None, arm, "a control, or an arm with a policy", choices=CONTROLS)
    brain = cast(Brain, arm) if policy_source is None else "policy"
    policy = policy_source() if policy_source is not None else None
    try:
        pool = _Pool(arm, brain, policy, protocol, max_tries, _Outbox(on_record, actions_folder))
        return pool.run(episodes, workers)
    finally:
        if policy is not None:
            policy.close()


def actions_name(key: EpisodeKey) -> str:
    """File name of an episode's actions."""
    return f"{key.task_suite}-{key.task}-{key.initial_state}-{key.seed}.npz"


def load_actions(path: Path) -> NDArray[np.float64]:
    """Executed actions, float64 (steps, 7)."""
    with np.load(path, allow_pickle=False) as file:
        return np.asarray(file["actions"], dtype=np.float64)


@dataclass(frozen=True)
class _Outbox:
    on_record: Callable[[EpisodeRecord], None]
    actions_folder: Path | None

    def put(self, record: EpisodeRecord, actions: NDArray[np.float64]) -> None:
        """Actions first: an episode on record always has them."""
        if self.actions_folder is not None and record.outcome in ("success", "failure"):
            buffer = io.BytesIO()
            np.savez_compressed(buffer, actions=actions)
            write_atomically(self.actions_folder / actions_name(record.key), buffer.getvalue())
        self.on_record(record)


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    key: EpisodeKey | None = None
    task: tuple[str, int] | None = None
    """Of the scene it holds."""
    heard: float = field(default_factory=time.monotonic)
    look: Look | None = None
    """Waiting for its chunk."""


class _Pool:
    def __init__(
        self, arm: str, brain: Brain, policy: Policy | None, protocol: Protocol, max_tries: int, outbox: _Outbox
    ) -> None:
        self._arm, self._brain, self._policy = arm, brain, policy
        self._protocol, self._max_tries, self._outbox = protocol, max_tries, outbox
        self._waiting: list[EpisodeKey] = []
        self._tries: dict[EpisodeKey, int] = {}
        self._workers: list[_Worker] = []
        self._errors = self._replaced = 0
        self._gl: tuple[str | None, str | None] = (None, None)

    def run(self, episodes: list[EpisodeKey], workers: int) -> PoolReport:
        self._waiting = list(episodes)
        try:
            for _ in range(min(workers, len(episodes))):
                self._start_worker()
            while any(worker.key for worker in self._workers) or self._waiting:
                self._turn()
        finally:
            self._stop()
        return PoolReport(len(episodes), self._errors, self._replaced, *self._gl)

    def _turn(self) -> None:
        for worker in list(self._workers):
            if worker.key is None and self._waiting:
                self._assign(worker)
        looking = [worker for worker in self._workers if worker.look is not None]
        busy = [worker for worker in self._workers if worker.key is not None]
        heard = wait(
            [worker.pipe for worker in busy if worker.look is None],
            timeout=0.0 if len(looking) == len(busy) else _LINGER_SECONDS if looking else 1.0,
        )
        for worker in busy:
            if worker.pipe in heard:
                self._hear(worker)
            elif worker.look is None and time.monotonic() - worker.heard > SILENCE_SECONDS:
                self._lose(worker, f"the simulator hung: nothing heard for {SILENCE_SECONDS:.0f} s")
        if looking and not heard:
            self._answer(looking)

    # --- workers -----------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=serve, args=(theirs, os.getpid(), self._brain, self._protocol), daemon=True, name="simulator"
        )
        with one_thread_each():
            process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))

    def _assign(self, worker: _Worker) -> None:
        """The next episode of the task whose scene the worker holds, else of the task with most left per worker."""
        left: dict[tuple[str, int], list[EpisodeKey]] = {}
        for key in self._waiting:
            left.setdefault((key.task_suite, key.task), []).append(key)
        if worker.task not in left:
            at = [other.task for other in self._workers if other is not worker and other.key is not None]
            worker.task = max(left, key=lambda of: len(left[of]) / (1 + at.count(of)))
        key = left[worker.task][0]
        self._waiting.remove(key)
        self._tries[key] = self._tries.get(key, 0) + 1
        worker.key, worker.heard = key, time.monotonic()
        try:
            worker.pipe.send(key)
        except OSError:
            self._lose(worker, "the simulator process was gone")

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(timeout=5)
            self._lose(worker, f"the simulator process died (exit code {worker.process.exitcode})")
            return
        worker.heard = time.monotonic()
        match message:
            case Beat():
                pass
            case Look():
                worker.look = message
            case Finished():
                self._finish(worker, message)
            case Stumble(reason):
                self._retry_or_give_up(worker, reason)
            case Broken(fault):
                raise MachineFault(fault)

    def _lose(self, worker: _Worker, reason: str) -> None:
        """Ends a worker for good, starts another in its place, and has the episode repeated."""
        self._workers.remove(worker)
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._replaced += 1
        self._retry_or_give_up(worker, reason)
        self._start_worker()

    def _stop(self) -> None:
        for worker in self._workers:
            with suppress(OSError):
                worker.pipe.send(None)
            if worker.key is not None:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join(timeout=10)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    # --- episodes ----------------------------------------------------------------------------------------

    def _answer(self, looking: list[_Worker]) -> None:
        looks = [worker.look for worker in looking if worker.look is not None]
        for worker, answer in zip(looking, self._ask(looks), strict=True):
            worker.look, worker.heard = None, time.monotonic()
            try:
                worker.pipe.send(answer)
            except OSError:
                self._lose(worker, "the simulator process died while the policy thought")

    def _ask(self, looks: list[Look]) -> list[Answer]:
        """One answer per look. A batch that fails is asked again look by look: one bad look spoils one episode."""
        assert self._policy is not None
        try:
            chunks: list[Chunk] = self._policy.act(looks)
            if len(chunks) != len(looks):
                raise PolicyFault(f"the policy gave {len(chunks)} chunks for {len(looks)} looks")
            return [Answer(chunk) for chunk in chunks]
        except PolicyFault as fault:
            if len(looks) == 1:
                return [Answer(None, f"policy: {fault}")]
            return [self._ask([look])[0] for look in looks]

    def _finish(self, worker: _Worker, end: Finished) -> None:
        assert worker.key is not None
        self._gl = (end.gl_vendor, end.gl_renderer)
        record = EpisodeRecord(
            arm=self._arm,
            key=worker.key,
            protocol=self._protocol.digest(),
            outcome=end.outcome,
            reason=end.reason,
            scene_sha256=end.scene_sha256,
            steps=len(end.actions),
            looks=end.looks,
            wall_seconds=end.wall_seconds,
            tries=self._tries[worker.key],
        )
        worker.key = None
        self._errors += end.outcome == "error"
        self._outbox.put(record, end.actions)

    def _retry_or_give_up(self, worker: _Worker, reason: str) -> None:
        key, started = worker.key, worker.heard
        worker.key = worker.look = None
        if key is None:
            return
        if self._tries[key] < self._max_tries:
            self._waiting.insert(0, key)
            return
        self._errors += 1
        record = EpisodeRecord(
            arm=self._arm,
            key=key,
            protocol=self._protocol.digest(),
            outcome="error",
            reason=f"{reason}, {self._tries[key]} times",
            scene_sha256=None,
            steps=0,
            looks=0,
            wall_seconds=time.monotonic() - started,
            tries=self._tries[key],
        )
        self._outbox.put(record, np.empty((0, 7)))
