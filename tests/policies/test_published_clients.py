"""Our server under the published openpi client, and our client under a published vla-eval server.

Each needs an environment of its own: HARNESS_OPENPI_PYTHON and HARNESS_VLA_EVAL_PYTHON name their interpreters
(`nox -s published-clients` makes them).
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from harness.data.dataset import open_dataset
from harness.models import build, input_shape
from harness.plan import EpisodeKey
from harness.policies.base import Look
from harness.policies.card import write_card
from harness.policies.openpi import OpenpiPolicy
from harness.policies.vla_eval import VlaEvalPolicy
from harness.suite import Data

HERE = Path(__file__).parent
pytestmark = pytest.mark.full


def interpreter(variable):
    if variable not in os.environ:
        pytest.skip(f"{variable} names no interpreter")
    return os.environ[variable]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def wait_for(url, process):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended"
        try:
            return httpx.get(url, trust_env=False)
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError("the server did not start")


@pytest.fixture
def server():
    started = []

    def start(*command):
        started.append(subprocess.Popen(command))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(timeout=20)


def test_the_published_openpi_client_is_answered_as_ours(tmp_path, server):
    python, port = interpreter("HARNESS_OPENPI_PYTHON"), free_port()
    shape = input_shape("pi0", "tiny")
    torch.manual_seed(5)
    save_file(build("pi0", "tiny").state_dict(), tmp_path / "model.safetensors")
    write_card(tmp_path, "pi0", "tiny", open_dataset(Data(tasks=[0, 1]), None, shape))
    process = server(sys.executable, "-m", "harness", "serve", str(tmp_path), "--port", str(port))
    assert wait_for(f"http://127.0.0.1:{port}/healthz", process).text == "OK\n"
    command = [python, str(HERE / "published_openpi.py"), "127.0.0.1", str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["metadata"]["model"] == "pi0"
    assert np.array(found["actions"]).shape == (shape.chunk, 7)
    assert np.isfinite(found["actions"]).all()
    assert (found["dtype"], found["repeats"]) == ("<f4", True)
    assert found["timing"] == ["infer_ms"]
    assert "no image; expected observation/image" in found["error"]

    key = EpisodeKey(task_suite="libero_object", task=0, initial_state=0, seed=0)
    images = {camera: np.zeros((48, 48, 3), np.uint8) for camera in ("agentview", "robot0_eye_in_hand")}
    ours = OpenpiPolicy(f"ws://127.0.0.1:{port}")
    (chunk,) = ours.act([Look(key, 0, images, np.zeros(8), "reach for object 1", 3)])
    ours.close()
    assert chunk.shape == (shape.chunk, 7)


def test_our_client_plays_with_a_published_vla_eval_server(server):
    port = free_port()
    process = server(interpreter("HARNESS_VLA_EVAL_PYTHON"), str(HERE / "published_vla_eval.py"), str(port))
    assert wait_for(f"http://127.0.0.1:{port}/health", process).json() == {"status": "ok"}
    policy = VlaEvalPolicy(f"ws://127.0.0.1:{port}")
    images = {camera: np.full((8, 8, 3), 200, np.uint8) for camera in ("agentview", "robot0_eye_in_hand")}
    keys = [EpisodeKey(task_suite="libero_object", task=0, initial_state=state, seed=0) for state in (0, 1)]
    for replan in range(6):
        looks = [Look(key, replan, images, np.full(8, 0.25), "go", 0) for key in keys]
        for chunk in policy.act(looks):
            assert chunk.tolist() == [[replan, 200, 0.25, 0, 0, 0, 0]]
    for key in keys:
        policy.ended(key, success=True)
    (chunk,) = policy.act([Look(keys[0], 0, images, np.full(8, 0.25), "go", 0)])
    assert chunk[0, 0] == 0
    policy.close()
