"""What every simulator process has in common: its environment, and ending with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1
"""`prctl(2)`."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "LP_NUM_THREADS": "1",  # Mesa's software renderer: one thread per worker beats many that contend
}


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes started inside compute and render on one thread each. A spawned process reads its libraries'
    settings before its first own line runs, hence here and not in the child."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def end_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent dies, however that happens. Linux only; elsewhere a no-op.

    Args:
        parent: process id of the parent, to notice one that died before this call.
    """
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError):
        return
    if os.getppid() != parent:
        os._exit(1)
