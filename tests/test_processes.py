import subprocess
import sys

import psutil

from harness.processes import descendants, kill_all

NAP = "import time; time.sleep(60)"
CHILD = f"""
import os
from harness.processes import die_with_parent
die_with_parent({{}})
print('up', flush=True)
{NAP}
"""
FAITHFUL = CHILD.format("os.getppid()")
PARENT = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {FAITHFUL!r}]); time.sleep(60)"


def start(code: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


def test_child_dies_with_a_killed_parent():
    parent = start(PARENT)
    assert parent.stdout.readline() == b"up\n"
    (child,) = descendants(parent.pid)
    parent.kill()
    parent.wait()
    assert not psutil.wait_procs([child], timeout=5)[1]


def test_child_of_a_parent_that_has_ended_before_does_not_start():
    orphan = start(CHILD.format(2**22 + 1))
    assert orphan.wait(timeout=30) == 1
    assert orphan.stdout.read() == b""


def test_kill_all_leaves_nobody():
    process = start(NAP)
    kill_all([psutil.Process(process.pid)])
    assert not psutil.pid_exists(process.pid)
    assert descendants(process.pid) == []
