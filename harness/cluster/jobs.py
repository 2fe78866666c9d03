"""`harness run --on slurm`: every piece of work a job of its own, through submitit. The queue is the cluster's.

A job is one piece of `harness.work`: a run that has the machine to itself, the timing runs of one model and repeat
(compared with each other, they must share a node), or what comes before or after training. Whatever ends a job, what
is left of its work is found on disk by whoever asks next: the same job requeued, another one, or the next command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.cluster.job import Job, JobEnd
from harness.cluster.resources import Slurm
from harness.display import Display, title
from harness.errors import BadInput, HarnessError, MachineFault
from harness.machine import Fingerprint, fingerprint
from harness.plan import Plan, PlannedRun, RunKind
from harness.records import Record
from harness.run import Workplace, ask_gate, progress_of, spoken_attempt
from harness.store import ResultFolder, read_record, write_record
from harness.train.journal import steps_file
from harness.work import AskGate, TakeTurns, Train, Work, remaining_work

if TYPE_CHECKING:
    import submitit

CLUSTERS = ("slurm", "local-jobs")
Cluster = Literal["slurm", "local-jobs"]
MOST_TRIES = 3
"""Jobs in all for one piece of work, when they end without an answer: killed, or their node lost."""
ENDED = "ENDED"
_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
"""So long a shared file system may take to show the answer of a job that has left the queue."""
_SIGNAL_SECONDS = 120
"""So long before a job's time is up, it is told, stops its ranks and asks to be queued again."""
_REQUEUES = 1000
"""A job may be queued again as often as it takes: every time it goes on from its last checkpoint."""


class Submitted(Record):
    """`<job id>.json`: what a job was given, kept until somebody has seen how it ended."""

    job_id: str
    result: str
    names: list[str]
    title: str


@dataclass
class Queue:
    """Where jobs are sent. Raises MachineFault at once where submitit, or Slurm, is not there."""

    cluster: Cluster
    resources: Slurm
    folder: Path

    def __post_init__(self) -> None:
        try:
            import submitit
        except ImportError:
            raise MachineFault("jobs need submitit: pip install 'vla-harness[slurm]'") from None
        name = "local" if self.cluster == "local-jobs" else "slurm"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._gone: dict[str, float] = {}
        try:
            self._executor = submitit.AutoExecutor(
                str(self.folder), cluster=name, local_max_num_timeout=_REQUEUES, slurm_max_num_timeout=_REQUEUES
            )
        except RuntimeError as error:
            raise MachineFault(f"--on {self.cluster}: {error}") from None

    def submit(self, function: Callable[[], Any], name: str, nodes: int) -> submitit.Job[Any]:
        """Raises MachineFault when the cluster does not take the job, with the cluster's own words."""
        import submitit

        self._executor.update_parameters(name=name, **_parameters(self.cluster, self.resources, nodes))
        try:
            return self._executor.submit(function)
        except submitit.core.utils.FailedJobError as error:
            raise MachineFault(f"the job was not taken: {error}") from None

    def state(self, job: submitit.Job[Any]) -> str:
        """Slurm's word for it, or ENDED once its answer is there or it has been out of the queue for a while."""
        if job.paths.result_pickle.exists():
            return ENDED
        state = _local_state(job.job_id) if self.cluster == "local-jobs" else _slurm_state(job.job_id)
        if state != ENDED:
            self._gone.pop(job.job_id, None)
            return state
        gone = self._gone.setdefault(job.job_id, time.monotonic())
        return ENDED if time.monotonic() - gone > _ANSWER_SECONDS else "COMPLETING"

    def cancel(self, job: submitit.Job[Any]) -> None:
        if self.cluster == "slurm":
            job.cancel(check=False)
        elif _local_state(job.job_id) != ENDED:
            os.kill(int(job.job_id), signal.SIGINT)

    def again(self, job_id: str) -> submitit.Job[Any]:
        """A job that an earlier command has submitted."""
        import submitit

        kind = submitit.SlurmJob if self.cluster == "slurm" else submitit.LocalJob
        return kind(folder=str(self.folder), job_id=job_id)


def _parameters(cluster: Cluster, resources: Slurm, nodes: int) -> dict[str, Any]:
    shared: dict[str, Any] = {"timeout_min": resources.minutes, "nodes": nodes, "tasks_per_node": 1}
    if resources.gpus_per_node is not None:
        shared["gpus_per_node"] = resources.gpus_per_node
    if cluster == "local-jobs":
        return shared | {"nodes": 1}
    given = resources.model_dump(exclude_none=True, include={"partition", "account", "qos", "constraint"})
    if resources.exclusive:
        given["exclusive"] = True
    if resources.cpus_per_task is not None:
        given["cpus_per_task"] = resources.cpus_per_task
    if resources.memory_gb is not None:
        shared["mem_gb"] = resources.memory_gb
    return shared | {f"slurm_{key}": value for key, value in given.items()} | {"slurm_signal_delay_s": _SIGNAL_SECONDS}


def node_fingerprint(queue: Queue, say: Callable[[str], None]) -> Fingerprint:
    """What a node is, as a job on one says: the machine that submits is often another kind."""
    job = queue.submit(fingerprint, "harness-machine", 1)
    say(f"job {job.job_id}: asks a node what it is")
    while queue.state(job) != ENDED:
        time.sleep(_POLL_SECONDS)
    found = _answer(job)
    if not isinstance(found, Fingerprint):
        raise MachineFault(f"job {job.job_id} ended without an answer; see {job.paths.stderr}")
    return found


def in_jobs(queue: Queue) -> Callable[[Plan, ResultFolder, Workplace, Display], None]:
    """Does what is left of a plan by jobs; an argument of `harness.run.carry_out`."""

    def do(plan: Plan, result: ResultFolder, place: Workplace, display: Display) -> None:
        _Following(queue, plan, result, place, display).do_remaining_work()

    return do


class _Following:
    """Submits, watches and, when interrupted, cancels the jobs of one result."""

    def __init__(self, queue: Queue, plan: Plan, result: ResultFolder, place: Workplace, display: Display) -> None:
        self._queue, self._plan, self._result, self._place, self._display = queue, plan, result, place, display
        self._running: dict[str, tuple[submitit.Job[Any], Submitted]] = {}
        self._states: dict[str, str] = {}
        self._tries: dict[str, int] = {}

    def do_remaining_work(self) -> None:
        """`tried` holds what has had its turn since the command was started, as in a run without jobs."""
        try:
            tried = self._follow(self._taken_up())
            while remaining := self._remaining(tried):
                if isinstance(remaining[0], AskGate):
                    self._display.start(remaining)
                    ask_gate(self._plan, self._result, self._place, self._display)
                    tried |= remaining[0].names
                    continue
                groups = job_groups(remaining)
                for group in groups if self._queue.cluster == "slurm" else groups[:1]:
                    self._submit(group)
                tried |= self._follow(remaining)
        except BaseException:
            for job, submitted in self._running.values():
                self._queue.cancel(job)
                self._file(submitted.job_id).unlink(missing_ok=True)
            raise

    def _remaining(self, tried: frozenset[str]) -> list[Work]:
        return remaining_work(self._plan, progress_of(self._plan, self._result, self._place.store), tried)

    def _file(self, job_id: str) -> Path:
        return self._queue.folder / f"{job_id}.json"

    def _submit(self, works: Sequence[Work]) -> None:
        names = [name for work in works for name in sorted(work.names)]
        called = title(works[0]) + (f" and {len(works) - 1} more" if len(works) > 1 else "")
        order = Job(
            result=str(self._result.path.resolve()),
            results=str(self._place.store.root.resolve()),
            baselines=str(self._place.baselines.root.resolve()),
            command=self._place.command,
            names=tuple(names),
            profile=self._place.profile,
        )
        job = self._queue.submit(order, f"harness-{self._plan.suite}", self._plan.nodes)
        submitted = Submitted(job_id=job.job_id, result=self._result.path.name, names=names, title=called)
        write_record(self._file(job.job_id), submitted)
        self._running[job.job_id] = job, submitted
        self._display.say(f"job {job.job_id}: {called}")

    def _taken_up(self) -> list[Work]:
        """Jobs that an earlier command left running are followed, not done twice."""
        for file in self._queue.folder.glob("*.json"):
            submitted = read_record(file, Submitted)
            if submitted.result == self._result.path.name:
                self._running[submitted.job_id] = self._queue.again(submitted.job_id), submitted
                self._display.say(f"job {submitted.job_id}: {submitted.title} (submitted before)")
        return self._remaining(frozenset()) if self._running else []

    def _follow(self, works: Sequence[Work]) -> frozenset[str]:
        """Returns when all jobs have ended, with the names of what has had its turn."""
        had: frozenset[str] = frozenset()
        if self._running:
            self._display.start(list(works))
        while self._running:
            for job_id, (job, submitted) in list(self._running.items()):
                state = self._queue.state(job)
                self._note_state(job_id, state)
                if state == ENDED:
                    del self._running[job_id]
                    self._file(job_id).unlink(missing_ok=True)
                    had |= self._ended(job, submitted)
            self._show_progress(works)
            time.sleep(_POLL_SECONDS)
        return had

    def _ended(self, job: submitit.Job[Any], submitted: Submitted) -> frozenset[str]:
        names = frozenset(submitted.names)
        end = _answer(job)
        if isinstance(end, JobEnd):
            if end.fault is not None:
                raise HarnessError(f"job {job.job_id} on {end.host}: {end.fault}")
            self._display.say(f"job {job.job_id} has ended on {end.host}: {submitted.title}")
            for line in self._outcomes(names):
                self._display.say(f"      {line}")
            return names
        tries = self._tries[submitted.title] = self._tries.get(submitted.title, 1) + 1
        if tries > MOST_TRIES:
            self._display.say(f"[red]job {job.job_id} ended without an answer[/red]; see {job.paths.stderr}")
            return names
        self._display.say(f"job {job.job_id} ended without an answer; once more ({tries} of {MOST_TRIES})")
        left = [work for work in self._remaining(frozenset()) if work.names & names]
        if left:
            self._submit(left)
        return frozenset()

    def _outcomes(self, names: frozenset[str]) -> list[str]:
        runs = [run for run in [*self._plan.runs, *self._plan.confirmations] if run.key in names]
        return [spoken_attempt(self._result, run) for run in runs]

    def _note_state(self, job_id: str, state: str) -> None:
        if state not in (ENDED, self._states.get(job_id)):
            self._display.say(f"job {job_id} is {state}")
        self._states[job_id] = state

    def _show_progress(self, works: Sequence[Work]) -> None:
        steps = [(run.key, run.steps) for work in works for run in _runs(work)]
        if not steps:
            return
        made = [_steps_made(self._result, key, total) for key, total in steps]
        waiting = sum(state == "PENDING" for state in self._states.values())
        detail = f"{len(self._running)} jobs, {waiting} of them waiting"
        self._display.advance(sum(made), sum(total for _, total in steps), detail)


def _local_state(job_id: str) -> str:
    """submitit's local jobs are named by the process that controls them."""
    import psutil

    try:
        return ENDED if psutil.Process(int(job_id)).status() == psutil.STATUS_ZOMBIE else "RUNNING"
    except psutil.NoSuchProcess:
        return ENDED


def _slurm_state(job_id: str) -> str:
    """From the queue: accounting, where a cluster has it, lags behind."""
    question = ["squeue", "--noheader", "--format=%T", f"--jobs={job_id}"]
    answer = subprocess.run(question, capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode != 0 and "Invalid job id" not in answer.stderr:
        return "UNKNOWN"  # the controller does not answer: nothing is known to have ended
    return answer.stdout.strip() or ENDED


def _runs(work: Work) -> list[PlannedRun]:
    trains = work.runs if isinstance(work, TakeTurns) else (work,) if isinstance(work, Train) else ()
    return [train.run for train in trains]


def _steps_made(result: ResultFolder, key: str, most: int) -> int:
    attempts = result.attempts(key)
    file = steps_file(attempts[-1], 0) if attempts else None
    return min(most, file.read_bytes().count(b"\n")) if file is not None and file.exists() else 0


def _answer(job: submitit.Job[Any]) -> Any:
    """What the job returned; None when it was killed, or its node lost, before it could return anything.

    Raises:
        HarnessError: it ended by an exception that nobody foresaw.
    """
    import submitit

    if not job.paths.result_pickle.exists():
        return None
    try:
        return job.task(0).result()
    except submitit.core.utils.FailedJobError as error:
        raise HarnessError(f"job {job.job_id} failed: {error}") from None


def job_groups(remaining: Sequence[Work]) -> list[list[Work]]:
    """What can be done now, by job: all training side by side, or else the first thing alone.

    The timing runs of one model and repeat stay together, whether they take turns or stand one after the other.
    """
    if not isinstance(remaining[0], Train | TakeTurns):
        return [[remaining[0]]]
    groups: dict[object, list[Work]] = {}
    for number, work in enumerate(remaining):
        if isinstance(work, Train | TakeTurns):
            run = _runs(work)[0]
            timing = run.kind is RunKind.TIMING
            key: object = (run.cell.model_key, run.repeat) if timing else number
            groups.setdefault(key, []).append(work)
    return list(groups.values())


def check_cluster(name: str) -> Cluster:
    if name not in CLUSTERS:
        raise BadInput("--on", None, name, "where jobs can be sent", CLUSTERS)
    return "slurm" if name == "slurm" else "local-jobs"
