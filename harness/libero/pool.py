"""Episodes in parallel: simulator processes around policies that live in the calling process.

All arms go through one pool, task by task, so that a process compiles a scene once for all of them. A worker that dies
or falls silent is replaced and its episode repeated; since an episode depends on its key and the policy alone, a repeat
is the same episode. What still fails after `max_tries` is an error with its reason.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadInput, MachineFault
from harness.libero.executors import Executor, LocalExecutor, Simulator
from harness.libero.pool_worker import Answer, Beat, Brain, Broken, Finished, Play, Stumble
from harness.libero.records import EpisodeRecord, Protocol
from harness.plan import EpisodeKey
from harness.policies.base import Chunk, Look, Policy, PolicyFault
from harness.store import write_atomically
from harness.suite import CONTROLS, is_control

SILENCE_SECONDS = 300.0
"""A worker that sends nothing for this long hangs. Compiling a scene, the longest silence, takes 5 to 60 s."""

_LINGER_SECONDS = 0.02
"""How long looks wait for others to be batched with. Batching cannot change an answer that keeps to `Policy`."""


@dataclass(frozen=True)
class ArmToPlay:
    """What one arm has left to do.

    Attributes:
        name: `expert`, `expert:…` with a handicap, `still`, or the name of a policy.
        episodes: to be played, each once.
        policy: its owner closes it; None for the controls, which act inside the workers.
        actions_folder: gets `actions_name(key)` per episode: `actions`, float64 (steps, 7), as executed.
    """

    name: str
    episodes: list[EpisodeKey]
    policy: Policy | None
    actions_folder: Path | None

    @property
    def brain(self) -> Brain:
        """Raises BadInput for an arm without a policy that is no control."""
        if self.policy is not None:
            return "policy"
        if not is_control(self.name):
            raise BadInput("arm", None, self.name, "a control, or an arm with a policy", choices=CONTROLS)
        return self.name


@dataclass(frozen=True)
class PoolReport:
    """What an evaluation cost and where it rendered; the episodes themselves go to `on_record`.

    Attributes:
        replaced: workers that died or hung.
        scenes: scenes that were compiled.
        gl_vendor, gl_renderer: None when no episode got as far as a scene; several on unlike machines.
    """

    episodes: int
    errors: int
    replaced: int
    scenes: int
    gl_vendor: str | None
    gl_renderer: str | None


OnRecord = Callable[[EpisodeRecord], Collection[str]]
"""Takes an episode as it ends; returns the names of arms whose waiting episodes are not wanted any more."""


def evaluate(
    arms: list[ArmToPlay],
    protocol: Protocol,
    *,
    workers: int,
    max_tries: int,
    on_record: OnRecord,
    executor: Executor | None = None,
) -> PoolReport:
    """Plays every episode of every arm once and reports each as it ends.

    Args:
        workers: simulator processes; each keeps one scene, so more of them than tasks cost more compiling.
        max_tries: tries before a dying or hanging simulator makes the episode an error.
        on_record: called in this process, in the order of endings.
        executor: where the processes run; on this machine when left out. It is closed at the end.

    Raises:
        BadInput: an arm without a policy that is no control.
        MachineFault: the machine cannot simulate.
    """
    brains = {arm.name: arm.brain for arm in arms}
    used = executor or LocalExecutor()
    try:
        return _Pool({arm.name: arm for arm in arms}, brains, protocol, max_tries, on_record, used).run(workers)
    finally:
        used.close()


def actions_name(key: EpisodeKey) -> str:
    """File name of an episode's actions."""
    return f"{key.task_suite}-{key.task}-{key.initial_state}-{key.seed}.npz"


def load_actions(path: Path) -> NDArray[np.float64]:
    """Executed actions, float64 (steps, 7)."""
    with np.load(path, allow_pickle=False) as file:
        return np.asarray(file["actions"], dtype=np.float64)


@dataclass(frozen=True)
class _Job:
    """An episode of an arm."""

    arm: str
    key: EpisodeKey

    @property
    def task(self) -> tuple[str, int]:
        return self.key.task_suite, self.key.task


@dataclass(eq=False)
class _Worker:
    number: int
    simulator: Simulator
    job: _Job | None = None
    task: tuple[str, int] | None = None
    """Of the scene it holds."""
    heard: float = field(default_factory=time.monotonic)
    look: Look | None = None
    """Waiting for its chunk."""

    @property
    def pipe(self) -> Connection:
        return self.simulator.pipe


class _Pool:
    def __init__(
        self,
        arms: dict[str, ArmToPlay],
        brains: dict[str, Brain],
        protocol: Protocol,
        max_tries: int,
        on_record: OnRecord,
        executor: Executor,
    ) -> None:
        self._arms, self._brains, self._executor = arms, brains, executor
        self._protocol, self._max_tries, self._on_record = protocol, max_tries, on_record
        self._waiting = [_Job(arm.name, key) for arm in arms.values() for key in arm.episodes]
        self._tries: dict[_Job, int] = {}
        self._workers: list[_Worker] = []
        self._ended = self._errors = self._replaced = self._scenes = 0
        self._gl: dict[tuple[str, str], None] = {}

    def run(self, workers: int) -> PoolReport:
        try:
            for number in range(min(workers, len(self._waiting))):
                self._start_worker(number)
            while any(worker.job for worker in self._workers) or self._waiting:
                self._turn()
        finally:
            self._stop()
        vendors, renderers = [vendor for vendor, _ in self._gl], [renderer for _, renderer in self._gl]
        return PoolReport(self._ended, self._errors, self._replaced, self._scenes, _listed(vendors), _listed(renderers))

    def _turn(self) -> None:
        for worker in list(self._workers):
            if worker.job is None and self._waiting:
                self._assign(worker)
        looking = [worker for worker in self._workers if worker.look is not None]
        busy = [worker for worker in self._workers if worker.job is not None]
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

    def _start_worker(self, number: int) -> None:
        self._workers.append(_Worker(number, self._executor.start(number, self._protocol)))

    def _assign(self, worker: _Worker) -> None:
        """The next episode of the task whose scene the worker holds, else of the task with most left per worker."""
        left: dict[tuple[str, int], list[_Job]] = {}
        for job in self._waiting:
            left.setdefault(job.task, []).append(job)
        if worker.task not in left:
            at = [other.task for other in self._workers if other is not worker and other.job is not None]
            worker.task = max(left, key=lambda of: len(left[of]) / (1 + at.count(of)))
            self._scenes += 1
        job = left[worker.task][0]
        self._waiting.remove(job)
        self._tries[job] = self._tries.get(job, 0) + 1
        worker.job, worker.heard = job, time.monotonic()
        try:
            worker.pipe.send(Play(job.key, self._brains[job.arm]))
        except OSError:
            self._lose(worker, "the simulator process was gone")

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            self._lose(worker, f"the simulator process died ({worker.simulator.epitaph()})")
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
        worker.simulator.kill()
        self._replaced += 1
        self._retry_or_give_up(worker, reason)
        self._start_worker(worker.number)

    def _stop(self) -> None:
        for worker in self._workers:
            if worker.job is not None:
                worker.simulator.kill()
        for worker in self._workers:
            if worker.job is None:
                worker.simulator.leave()
        self._workers.clear()

    # --- looks -------------------------------------------------------------------------------------------

    def _answer(self, looking: list[_Worker]) -> None:
        by_arm: dict[str, list[tuple[_Worker, Look]]] = {}
        for worker in looking:
            if worker.job is not None and worker.look is not None:
                by_arm.setdefault(worker.job.arm, []).append((worker, worker.look))
        for arm, asked in by_arm.items():
            policy = self._arms[arm].policy
            assert policy is not None
            for (worker, _), answer in zip(asked, ask(policy, [look for _, look in asked]), strict=True):
                worker.look, worker.heard = None, time.monotonic()
                try:
                    worker.pipe.send(answer)
                except OSError:
                    self._lose(worker, "the simulator process died while the policy thought")

    # --- episodes ----------------------------------------------------------------------------------------

    def _finish(self, worker: _Worker, end: Finished) -> None:
        assert worker.job is not None
        job, worker.job = worker.job, None
        self._gl[end.gl_vendor, end.gl_renderer] = None
        record = EpisodeRecord(
            arm=job.arm,
            key=job.key,
            protocol=self._protocol.digest(),
            outcome=end.outcome,
            reason=end.reason,
            scene_sha256=end.scene_sha256,
            steps=len(end.actions),
            looks=end.looks,
            wall_seconds=end.wall_seconds,
            tries=self._tries[job],
            first_images_sha256=end.first_images_sha256,
            last_images_sha256=end.last_images_sha256,
        )
        self._put(record, end.actions)

    def _retry_or_give_up(self, worker: _Worker, reason: str) -> None:
        job, started = worker.job, worker.heard
        worker.job = worker.look = None
        if job is None:
            return
        if self._tries[job] < self._max_tries:
            self._waiting.insert(0, job)
            return
        record = EpisodeRecord(
            arm=job.arm,
            key=job.key,
            protocol=self._protocol.digest(),
            outcome="error",
            reason=f"{reason}, {self._tries[job]} times",
            scene_sha256=None,
            steps=0,
            looks=0,
            wall_seconds=time.monotonic() - started,
            tries=self._tries[job],
        )
        self._put(record, np.empty((0, 7)))

    def _put(self, record: EpisodeRecord, actions: NDArray[np.float64]) -> None:
        """Actions first: an episode on record always has them."""
        arm = self._arms[record.arm]
        if arm.policy is not None:
            arm.policy.ended(record.key, success=record.outcome == "success")
        if arm.actions_folder is not None and record.outcome in ("success", "failure"):
            buffer = io.BytesIO()
            np.savez_compressed(buffer, actions=actions)
            write_atomically(arm.actions_folder / actions_name(record.key), buffer.getvalue())
        self._ended += 1
        self._errors += record.outcome == "error"
        unwanted = self._on_record(record)
        if unwanted:
            self._waiting = [job for job in self._waiting if job.arm not in unwanted]


def _listed(names: list[str]) -> str | None:
    return "; ".join(dict.fromkeys(names)) or None


def ask(policy: Policy, looks: list[Look]) -> list[Answer]:
    """One answer per look. A batch that fails is asked again look by look: one bad look spoils one episode."""
    try:
        chunks: list[Chunk] = policy.act(looks)
        if len(chunks) != len(looks):
            raise PolicyFault(f"the policy gave {len(chunks)} chunks for {len(looks)} looks")
        return [Answer(chunk) for chunk in chunks]
    except PolicyFault as fault:
        if len(looks) == 1:
            return [Answer(None, f"policy: {fault}")]
        return [ask(policy, [look])[0] for look in looks]
