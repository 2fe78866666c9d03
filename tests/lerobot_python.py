"""LeRobot's own Python, in an environment of its own: `HARNESS_LEROBOT_PYTHON` names it (`nox -s peer-lerobot`)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

PYTHON = os.environ.get("HARNESS_LEROBOT_PYTHON")
needed = pytest.mark.skipif(PYTHON is None, reason="HARNESS_LEROBOT_PYTHON names no Python that has lerobot")


def ask(script: Path, what: str, path: Path) -> dict:
    """The last line, JSON, of what a script of the tests prints under it; it reaches no hub."""
    quiet = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(path.parent / "hub")}
    command = [str(PYTHON), str(script), what, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])
