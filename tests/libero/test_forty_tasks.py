"""All 40 tasks by one command, with a simulator killed on the way; and the same records wherever they are simulated."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from episode_files import alike, episodes

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
PATIENCE_SECONDS = 3600.0

pytestmark = [pytest.mark.full, pytest.mark.timeout(2 * PATIENCE_SECONDS)]  # about 15 minutes on 2 cores


def command(results, workers, executor="local"):
    return [
        *(sys.executable, "-m", "harness", "evaluate", "--policy", "expert", "--quiet"),
        *("--task-suite", ",".join(SUITES), "--episodes", "1"),
        *("--workers", str(workers), "--executor", executor, "--results", str(results)),
    ]


def run(results, workers, executor="local"):
    line = command(results, workers, executor)
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode in (0, 11), done.stderr
    return episodes(results)


def run_and_kill_one(results, workers, after):
    """Kills one of the command's simulators once so many episodes are on record."""
    with subprocess.Popen(command(results, workers), stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(episodes(results)) < after:
                assert process.poll() is None, "it ended before a simulator could be killed"
                assert time.monotonic() < deadline
                time.sleep(0.5)
            simulators = [
                child
                for child in psutil.Process(process.pid).children(recursive=True)
                if "spawn_main" in " ".join(child.cmdline())
            ]
            os.kill(simulators[0].pid, signal.SIGKILL)
            returncode = process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
    assert returncode in (0, 11)
    return episodes(results)


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory):
    return run(tmp_path_factory.mktemp("one"), workers=1)


def test_one_command_plays_all_forty_tasks_through_a_killed_simulator(one_worker, tmp_path):
    killed = run_and_kill_one(tmp_path, workers=2, after=6)
    assert len(killed) == 40
    assert {(key.task_suite, key.task) for _, key in killed} == {
        (suite, task) for suite in SUITES for task in range(10)
    }
    assert {record.outcome for record in killed.values()} <= {"success", "failure"}
    assert max(record.tries for record in killed.values()) == 2
    assert alike(killed) == alike(one_worker)


def test_a_ray_cluster_gives_the_records_of_one_worker(one_worker, tmp_path):
    spread = run(tmp_path, workers=2, executor="ray")
    assert alike(spread) == alike(one_worker)
