"""Records at rest: the only module that knows the paths under `results/` and `baselines/`.

A file appears whole or not at all: it is written beside its place, synced, and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import ValidationError

from harness.errors import BadInput, DamagedRecord, DiskFull, HarnessError
from harness.records import Record, Value

RUN_FILE = "run.json"
"""In an attempt's folder, written last: how it has ended."""

R = TypeVar("R", bound=Record)
V = TypeVar("V", bound=Value)


# --- files -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns "no space left" and "quota exceeded" into DiskFull, naming the file."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"{path}: the disk is full; nothing that was recorded is lost. "
                "Free some space (`harness clean` removes checkpoints that are no longer needed) and run again."
            ) from error
        raise


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replaces `path` by `content` in one move, synced to disk. Raises DiskFull."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """What is written to the file takes the place of `path` in one move, synced to disk, at the end; or nothing does.

    Raises DiskFull.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def append_line(path: Path, line: str) -> None:
    """Adds one line and syncs it. A line cut off by a kill is dropped by `read_lines`. Raises DiskFull."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # an earlier writer was killed in the middle of its line
                    cut_off = path.read_bytes().rfind(b"\n") + 1
                    file.truncate(cut_off)
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def write_record(path: Path, record: Record) -> None:
    write_atomically(path, record.model_dump_json(indent=1, by_alias=True) + "\n")


def read_record(path: Path, kind: type[R]) -> R:
    """Raises DamagedRecord when the file is missing, cut off, edited out of shape, or from a newer harness."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise DamagedRecord(f"{path}: no such file; expected a {kind.__name__}") from None
    except DamagedRecord as error:
        raise DamagedRecord(f"{path}: {error}") from None
    except ValidationError as error:
        raise DamagedRecord(f"{path}: not a readable {kind.__name__}: {_first_fault(error)}") from None


def read_lines(path: Path, kind: type[V]) -> list[V]:
    """The records of a line-per-record file; a last line without its end is left out."""
    if not path.exists():
        return []
    *lines, _cut_off = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(kind.model_validate_json(line))
        except DamagedRecord as error:
            raise DamagedRecord(f"{path}, line {number}: {error}") from None
        except ValidationError as error:
            raise DamagedRecord(f"{path}, line {number}: not a {kind.__name__}: {_first_fault(error)}") from None
    return records


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


# --- where things are --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResultFolder:
    """`results/<suite>/<result id>/`: one execution of a suite."""

    path: Path

    @property
    def suite_file(self) -> Path:
        return self.path / "suite.toml"

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.json"

    @property
    def junit_file(self) -> Path:
        return self.path / "junit.xml"

    @property
    def summary_file(self) -> Path:
        return self.path / "summary.md"

    @property
    def alarms_file(self) -> Path:
        return self.path / "alarms.json"

    @property
    def comparison_file(self) -> Path:
        return self.path / "comparison.json"

    @property
    def report_file(self) -> Path:
        return self.path / "report.md"

    @property
    def page_file(self) -> Path:
        return self.path / "report.html"

    @property
    def command_file(self) -> Path:
        return self.path / "command.txt"

    @property
    def validation_file(self) -> Path:
        return self.path / "validation.json"

    @property
    def validation_report_file(self) -> Path:
        return self.path / "validation.md"

    def trial_file(self, label: str) -> Path:
        return self.path / "validate" / f"{label}.json"

    def contract_file(self, model_key: str) -> Path:
        return self.path / "contract" / f"{model_key}.json"

    def run(self, run_key: str) -> Path:
        return self.path / "train" / run_key

    def attempts(self, run_key: str) -> list[Path]:
        """Attempt folders of a run, oldest first."""
        found = self.run(run_key).glob("attempt-*")
        return sorted(found, key=lambda folder: int(folder.name.removeprefix("attempt-")))

    def spent(self) -> list[Path]:
        """Checkpoint folders nobody will resume from: those of all attempts at a run that ended well."""
        folders: list[Path] = []
        for run in sorted(self.path.glob("train/*/*/")):
            attempts = self.attempts(str(run.relative_to(self.path / "train")))
            if attempts and (attempts[-1] / RUN_FILE).exists() and (attempts[-1] / "export").is_dir():
                folders += [attempt / "checkpoint" for attempt in attempts]
        return [folder for folder in folders if folder.is_dir()]

    def arm(self, arm: str) -> Path:
        return self.path / "evaluate" / arm

    def episodes_file(self, arm: str) -> Path:
        return self.arm(arm) / "episodes.jsonl"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Only one `harness run` works on a result at a time. The kernel frees the lock with its owner."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HarnessError(f"{self.path}: another harness is working on this result") from None
            yield


_DEMOS, _FRAMES = "demos", "frames"


class Store:
    """The results folder: `<suite>/<result id>/…`, `demos/<hash>/…` and `frames/<hash>/…`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def suites(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return sorted(path.name for path in self.root.iterdir() if path.is_dir() and path.name not in (_DEMOS, _FRAMES))

    def results(self, suite: str) -> list[ResultFolder]:
        """Oldest first: a result id begins with its time."""
        return [ResultFolder(path.parent) for path in sorted((self.root / suite).glob("*/plan.json"))]

    def result(self, suite: str, result_id: str) -> ResultFolder:
        return ResultFolder(self.root / suite / result_id)

    def new_result(self, suite: str, digest: str, command: str) -> ResultFolder:
        """A folder named by the time and the plan's digest, with the command line in it. It is a result once its plan
        is there, which is written last. Raises DiskFull."""
        result = self.result(suite, f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{digest[:6]}")
        write_atomically(result.command_file, command + "\n")
        return result

    def find(self, name: str) -> ResultFolder:
        """A result by path, by `suite/id`, by id, or by suite (its newest). Raises BadInput."""
        for path in (Path(name), self.root / name):
            if (path / "plan.json").is_file():
                return ResultFolder(path)
        if newest := self.results(name):
            return newest[-1]
        every = [result for suite in self.suites() for result in self.results(suite)]
        for result in every:
            if result.path.name == name:
                return result
        known = [f"{result.path.parent.name}/{result.path.name}" for result in every]
        raise BadInput("RESULT", None, name, f"a result in {self.root}, such as one of", known + self.suites())

    def frontier(self, suite: str) -> Path:
        """Tries of `harness frontier`; no result, for it holds no plan."""
        return self.root / suite / "frontier"

    def jobs(self, suite: str) -> Path:
        """What a cluster's jobs are given and what they say (`harness.cluster.jobs`); no result either."""
        return self.root / suite / "jobs"

    def demonstrations(self, digest: str) -> Path:
        return self.root / _DEMOS / digest

    def all_demonstrations(self) -> list[Path]:
        return sorted((self.root / _DEMOS).glob("*/"))

    @property
    def decoded_frames(self) -> Path:
        """Frames of data sets, decoded and resized once for all runs (`harness.data.recordings`)."""
        return self.root / _FRAMES

    def all_frames(self) -> list[Path]:
        return sorted(self.decoded_frames.glob("*/"))


class BaselineFolder:
    """`baselines/<hardware key>/<suite>.json`: accepted reference values, committed and reviewed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, hardware_key: str, suite: str) -> Path:
        return self.root / hardware_key / f"{suite}.json"

    def files(self) -> list[Path]:
        return sorted(path for path in self.root.glob("*/*.json") if path.parent.name != "published")

    @contextlib.contextmanager
    def locked(self, hardware_key: str) -> Iterator[None]:
        """Writers of one machine's baselines wait for each other, so that none is lost."""
        folder = self.root / hardware_key
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0


def remove_folder(folder: Path) -> int:
    """Deletes a folder; returns the bytes freed."""
    size = folder_bytes(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return size
