"""Processes that end with their parents, and trees of them that end on demand. No torch here."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

PARENT_VARIABLE = "HARNESS_PARENT_PID"
"""Environment variable that tells a child started through a program of others who its parent is."""

_PR_SET_PDEATHSIG = 1
"""`prctl` option, from `linux/prctl.h`."""


def die_with_parent(parent: int) -> None:
    """Asks the kernel for SIGKILL when the parent ends, however it ends. To be called first thing in a child.

    torchrun's workers are process groups of their own and would survive a SIGKILL of torchrun. Elsewhere than on
    Linux this does nothing.

    Args:
        parent: process id of the parent, since one that has ended before this call sends no signal any more.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def parent_from_environment() -> int:
    """What `PARENT_VARIABLE` says; by hand, under a plain torchrun, whoever the parent is now."""
    return int(os.environ.get(PARENT_VARIABLE, os.getppid()))


def descendants(pid: int) -> list[psutil.Process]:
    """All living processes below `pid`, itself not included."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
        return found
    return []


def kill_all(processes: Iterable[psutil.Process], patience_seconds: float = 5.0) -> None:
    """SIGKILL to all, and waits until they are gone."""
    import psutil

    targets = list(processes)
    for process in targets:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(targets, timeout=patience_seconds)
