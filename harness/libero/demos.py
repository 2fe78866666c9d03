"""Demonstrations by the scripted expert, in LIBERO's own HDF5 layout.

A set is a function of its `DemosSpec`: the same actions and simulator states, byte for byte, whatever the number of
workers and however often the making was killed and taken up again.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from harness.errors import BadInput, MachineFault
from harness.libero.demo import load, packed, record_demo
from harness.libero.demos_file import DemosFile, write_demos_file
from harness.libero.protocol import preset
from harness.libero.records import Protocol
from harness.libero.tasks import task, task_names
from harness.libero.worker import one_thread_each
from harness.processes import die_with_parent
from harness.records import Record
from harness.store import read_record, write_atomically, write_record
from harness.task_suites import TaskSuite

if TYPE_CHECKING:
    from harness.libero.scene import Scene

RECORD_FILE = "demos.json"
_PARTS = ".parts"
_MOST_TRIES_PER_DEMO = 4
_SPARE_TRIES = 4


class DemosSpec(Record):
    """What a set of demonstrations is made from. Its digest names its folder.

    `SCHEMA` is raised when the expert or the drawing of scenes changes, so that an old set is not taken for a new one.
    """

    task_suite: TaskSuite
    tasks: list[int] = Field(min_length=1)
    episodes: int = Field(ge=1)
    """Demonstrations per task."""
    action_noise: float = Field(default=0.25, ge=0, le=1)
    """Standard deviation of Gaussian noise on the executed translation, in controller units, in every other
    demonstration; the recorded action is the expert's own (DART, Laskey et al. 2017)."""
    frame_stride: int = Field(default=3, ge=1)
    """Camera frames are stored at every n-th control step."""
    camera_size: int = Field(default=128, ge=16)
    seed: int = Field(default=0, ge=0)
    object_jitter_m: float = Field(default=0.02, ge=0, le=0.1)
    """Free-standing objects are moved by up to this much in x and y, so that the set covers the evaluation states."""
    arm_noise_rad: float = Field(default=0.02, ge=0, le=0.2)
    """Standard deviation of the arm's initial joints; robosuite's default, which LIBERO's own states show."""

    def protocol(self) -> Protocol:
        """The protocol whose images and states the policy will see at evaluation."""
        return preset("micro").model_copy(update={"camera_height": self.camera_size, "camera_width": self.camera_size})


class DemosRecord(Record):
    """`demos.json` beside the files: the set is complete."""

    spec: DemosSpec
    files: list[DemosFile]
    discarded: int
    """Episodes in which the expert failed; not in the files."""
    wall_seconds: float
    """Of the last call that worked on it."""
    mujoco: str
    robosuite: str


@dataclass(frozen=True)
class Progress:
    """Where the making stands: demonstrations kept, of how many, and episodes discarded."""

    done: int
    total: int
    discarded: int


@dataclass(order=True, frozen=True)
class _Try:
    """One episode to be made; sorted so that a worker keeps its task."""

    task: int
    attempt: int


def make_demonstrations(
    spec: DemosSpec, folder: Path, workers: int, on_progress: Callable[[Progress], None]
) -> DemosRecord:
    """Makes a set, or finishes one, or finds it made.

    Args:
        spec: what to make.
        folder: where; gets `<task name>_demo.hdf5` for every task and `demos.json`.
        workers: simulator processes.
        on_progress: called after every episode.

    Raises:
        BadInput: the folder holds another set, or the expert does not master one of the tasks.
        MachineFault: the machine cannot simulate, or a simulator process died.
    """
    started = time.monotonic()
    record_path = folder / RECORD_FILE
    if record_path.exists():
        record = read_record(record_path, DemosRecord)
        if record.spec != spec:
            raise BadInput(record_path, "spec", record.spec.digest(), f"the set {spec.digest()} or an empty folder")
        return record
    parts = folder / _PARTS / spec.digest()
    parts.mkdir(parents=True, exist_ok=True)
    made = _Made(spec, {number: {} for number in spec.tasks})
    for number, attempt in _finished(parts):
        made.note(number, attempt, load(parts / _part_name(number, attempt)).success)
    _make_missing(spec, parts, workers, made, on_progress)
    files = [_merge(spec, folder, parts, number, made.kept(number)) for number in spec.tasks]
    record = DemosRecord(
        spec=spec,
        files=files,
        discarded=made.discarded(),
        wall_seconds=time.monotonic() - started,
        mujoco=version("mujoco"),
        robosuite=version("robosuite"),
    )
    write_record(record_path, record)
    shutil.rmtree(folder / _PARTS)
    return record


@dataclass
class _Made:
    """Which attempts exist, per task. The set is the first `episodes` successes in the order of attempts."""

    spec: DemosSpec
    outcomes: dict[int, dict[int, bool]]
    running: set[_Try] = field(default_factory=set)

    def note(self, number: int, attempt: int, success: bool) -> None:
        if number in self.outcomes:
            self.outcomes[number][attempt] = success
        self.running.discard(_Try(number, attempt))

    def missing(self) -> Iterator[_Try]:
        """Attempts that are certainly needed, given what is known: as many as demonstrations, and one per failure."""
        for number, outcomes in self.outcomes.items():
            failures = sum(not success for success in outcomes.values())
            if failures > _SPARE_TRIES + (_MOST_TRIES_PER_DEMO - 1) * self.spec.episodes:
                raise BadInput(
                    "demonstrations", "tasks", number, f"a task the expert masters; it failed {failures} times"
                )
            for attempt in range(self.spec.episodes + failures):
                if attempt not in outcomes and _Try(number, attempt) not in self.running:
                    yield _Try(number, attempt)

    def kept(self, number: int) -> list[int]:
        outcomes = self.outcomes[number]
        return [attempt for attempt in sorted(outcomes) if outcomes[attempt]][: self.spec.episodes]

    def discarded(self) -> int:
        return sum(not success for outcomes in self.outcomes.values() for success in outcomes.values())

    def progress(self) -> Progress:
        done = sum(len(self.kept(number)) for number in self.outcomes)
        return Progress(done, len(self.outcomes) * self.spec.episodes, self.discarded())


def _make_missing(
    spec: DemosSpec, parts: Path, workers: int, made: _Made, on_progress: Callable[[Progress], None]
) -> None:
    if next(made.missing(), None) is None:
        return
    futures: set[Future[tuple[_Try, bool]]] = set()
    with one_thread_each():
        pool = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
        )
        try:
            while True:
                for item in made.missing():
                    if len(futures) >= workers:
                        break
                    made.running.add(item)
                    futures.add(pool.submit(_make_one, spec, parts, item))
                if not futures:
                    return
                finished, futures = wait(futures, return_when=FIRST_COMPLETED)
                for future in finished:
                    item, success = future.result()
                    made.note(item.task, item.attempt, success)
                on_progress(made.progress())
        except BrokenProcessPool as error:
            raise MachineFault(
                "a simulator process died (out of memory, or its graphics driver). "
                "What was made is kept: run the command again, with fewer workers if memory is short"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


# --- one episode, in a worker ------------------------------------------------------------------------------

_scenes: dict[tuple[str, int, int], Scene] = {}
"""The worker's scene, by (task suite, task, image size): at most one, since each takes about 2 GB."""


def _begin(parent: int) -> None:
    """First thing in a worker: it ends with its parent, and closes its scene while OpenGL still can."""
    die_with_parent(parent)
    Finalize(None, _close_scenes, exitpriority=0)


def _close_scenes() -> None:
    while _scenes:
        _scenes.popitem()[1].close()


def _make_one(spec: DemosSpec, parts: Path, item: _Try) -> tuple[_Try, bool]:
    demo = record_demo(_scene(spec, item.task), spec, item.attempt)
    write_atomically(parts / _part_name(item.task, item.attempt), packed(demo))
    return item, demo.success


def _scene(spec: DemosSpec, number: int) -> Scene:
    from harness.libero.scene import Scene

    key = (spec.task_suite, number, spec.camera_size)
    if key not in _scenes:
        _close_scenes()
        _scenes[key] = Scene(task(spec.task_suite, number), spec.protocol())
    return _scenes[key]


# --- parts and files ---------------------------------------------------------------------------------------


def _part_name(number: int, attempt: int) -> str:
    return f"{number}-{attempt}.npz"


def _finished(parts: Path) -> list[tuple[int, int]]:
    """(task, attempt) of the parts on disk."""
    names = [path.stem.split("-") for path in parts.glob("*.npz") if not path.name.startswith(".")]
    return [(int(number), int(attempt)) for number, attempt in names]


def _merge(spec: DemosSpec, folder: Path, parts: Path, number: int, attempts: list[int]) -> DemosFile:
    path = folder / f"{task_names(spec.task_suite)[number]}_demo.hdf5"
    demos = (load(parts / _part_name(number, attempt)) for attempt in attempts)
    return write_demos_file(path, task(spec.task_suite, number), spec.model_dump_json(), spec.frame_stride, demos)
