"""Simulators without a simulator: in threads, in milliseconds, behind the same pipe."""

import contextlib
import os
import threading
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import Any

import numpy as np

from harness.libero.pool_worker import Broken, Finished, Stumble
from harness.policies.base import Look

STUMBLES, BREAKS = 3, 4
"""Seeds under which state 13 misbehaves."""


def stub_serve(pipe, parent, protocol):
    """Takes two looks of a policy, none of a control, and succeeds in odd initial states."""
    while (wanted := pipe.recv()) is not None:
        key = wanted.key
        if key.initial_state == 13:
            pipe.send(Stumble("ValueError: nan in qacc") if key.seed == STUMBLES else Broken("no OpenGL: libegl1"))
            continue
        chunks = []
        for replan in range(2 if wanted.brain == "policy" else 0):
            pipe.send(Look(key, replan, {}, np.zeros(8), "", replan))
            chunks.append(pipe.recv())
        bad = [chunk.reason for chunk in chunks if chunk.chunk is None]
        outcome = "error" if bad else "success" if key.initial_state % 2 else "failure"
        reason = bad[0] if bad else None
        pipe.send(Finished(outcome, reason, "0" * 64, len(chunks), np.zeros((2, 7)), 0.01, str(os.getpid()), "stub"))


@dataclass
class ThreadSimulator:
    pipe: Any
    thread: threading.Thread

    def kill(self):
        self.pipe.close()

    def leave(self):
        self.pipe.send(None)
        self.thread.join()
        self.pipe.close()

    def epitaph(self):
        return "a thread"


class ThreadExecutor:
    """Counts what it starts."""

    def __init__(self):
        self.started, self.closed = [], False

    def start(self, number, protocol):
        ours, theirs = Pipe()
        thread = threading.Thread(target=_serve, args=(theirs, protocol), daemon=True)
        thread.start()
        self.started.append(number)
        return ThreadSimulator(ours, thread)

    def close(self):
        self.closed = True


def _serve(pipe, protocol):
    with contextlib.suppress(EOFError, OSError):
        stub_serve(pipe, None, protocol)
