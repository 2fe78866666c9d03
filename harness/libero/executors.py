"""Where simulator processes run: here, each a spawned one; `harness.libero.ray_executor` spreads them over machines.

Both hand the pool the same thing, a pipe to `harness.libero.pool_worker.serve`, so that records cannot differ.
"""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Protocol

from harness.libero.gpu import EglDevice, device_variables, egl_devices
from harness.libero.pool_worker import serve
from harness.libero.records import Protocol as EvaluationProtocol
from harness.libero.worker import ONE_THREAD, child_environment

_GOODBYE_SECONDS = 10.0


class Simulator(Protocol):
    """A running simulator process."""

    @property
    def pipe(self) -> Connection: ...

    def kill(self) -> None:
        """Ends it at once, whatever it does."""
        ...

    def leave(self) -> None:
        """Lets it end by itself, and sees to it that it does."""
        ...

    def epitaph(self) -> str:
        """Of one that is gone: how it ended."""
        ...


class Executor(Protocol):
    """Starts simulator processes."""

    def start(self, number: int, protocol: EvaluationProtocol) -> Simulator:
        """Args:
        number: counts the places of the pool from 0; a simulator that replaces another has its number.
        protocol: what all episodes are run under.

        Raises:
            MachineFault: there is no room for it.
        """
        ...

    def close(self) -> None: ...


@dataclass
class LocalSimulator:
    """A process of this machine."""

    process: BaseProcess
    pipe: Connection

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def leave(self) -> None:
        with suppress(OSError):
            self.pipe.send(None)
        self.process.join(timeout=_GOODBYE_SECONDS)
        self.kill()

    def epitaph(self) -> str:
        self.process.join(timeout=5)
        return f"exit code {self.process.exitcode}"


class LocalExecutor:
    """Spawned processes; a forked one would inherit a graphics driver in an unknown state."""

    def __init__(self) -> None:
        self._devices: list[EglDevice] | None = None

    def start(self, number: int, protocol: EvaluationProtocol) -> LocalSimulator:
        if self._devices is None:
            self._devices = egl_devices()
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=serve, args=(theirs, os.getpid(), protocol), daemon=True, name=f"simulator {number}"
        )
        with child_environment(ONE_THREAD | device_variables(number, self._devices, os.environ)):
            process.start()
        theirs.close()
        return LocalSimulator(process, ours)

    def close(self) -> None:
        """Each process is ended by whoever started it."""
