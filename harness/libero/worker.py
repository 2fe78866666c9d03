"""What every simulator process has in common: its environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "LP_NUM_THREADS": "1",  # Mesa's software renderer: one thread per worker beats many that contend
}


@contextmanager
def child_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes started inside have these variables. A spawned process reads its libraries' settings before its first
    own line runs, hence here and not in the child."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes started inside compute and render on one thread each."""
    with child_environment(ONE_THREAD):
        yield
