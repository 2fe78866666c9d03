from functools import cache

import pytest

from harness.libero.protocol import preset
from harness.libero.tasks import task
from harness.plan import EpisodeKey


@cache
def _scene(task_suite, number):
    from harness.libero.scene import Scene

    return Scene(task(task_suite, number), preset("micro"))


@pytest.fixture(scope="session")
def scenes():
    """Scenes by (task suite, task), compiled once for all tests: each costs seconds."""
    return _scene


@pytest.fixture(scope="session")
def key():
    def make(task_suite="libero_object", number=0, state=0, seed=7):
        return EpisodeKey(task_suite=task_suite, task=number, initial_state=state, seed=seed)

    return make
