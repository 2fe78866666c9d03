"""Our server against our client, and against messages no client should send."""

import re
import threading
from contextlib import contextmanager

import httpx
import msgpack
import numpy as np
import pytest
from websockets.sync.client import connect

from harness.policies.base import PolicyFault
from harness.policies.openpi import OpenpiPolicy
from harness.policies.serve import Limits, PolicyServer
from harness.policies.wire import pack_openpi


class Echo:
    """Answers with what it was shown: the seed's last digits, the state's first element, the brightest pixel."""

    def __init__(self):
        self.looks = []

    def act(self, looks):
        self.looks += looks
        if looks[0].prompt == "fail":
            raise PolicyFault("the model's actions are not finite")
        row = [looks[0].seed % 1000, looks[0].state[0], looks[0].images["agentview"].max(), 0, 0, 0, 1]
        return [np.array([row, row], dtype=np.float32)]


@contextmanager
def serving(policy, **limits):
    server = PolicyServer(policy, {"model": "pi0"}, "127.0.0.1", 0, Limits(**limits))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield "ws://{}:{}".format(*server.address)
    finally:
        server.stop()
        thread.join()


def test_our_client_gets_from_our_server_what_the_policy_says(make_look, hasty):
    policy = Echo()
    with serving(policy) as url:
        client = OpenpiPolicy(url, hasty)
        chunks = client.act([make_look(), make_look(seed=2**62 + 5)])
        client.close()
    assert client.greeting["model"] == "pi0"
    assert chunks[0].tolist() == [[567, 0, 47, 0, 0, 0, 1]] * 2
    assert chunks[1][0, 0] == (2**62 + 5) % 1000
    (found,) = [look for look in policy.looks if look.seed == make_look().seed]
    for camera, image in make_look().images.items():
        assert (found.images[camera] == image).all()
    assert (found.state == make_look().state).all()
    assert found.prompt == "go"


def test_without_a_seed_the_same_request_gets_the_same_noise(make_look):
    policy = Echo()
    with serving(policy) as url, connect(url) as connection:
        connection.recv()
        for state in (1.0, 1.0, 2.0):
            request = {"observation/image": make_look().images["agentview"], "prompt": "go"}
            connection.send(pack_openpi(request | {"observation/state": np.full(8, state)}))
            assert msgpack.unpackb(connection.recv())["policy_timing"]["infer_ms"] >= 0
    first, second, third = (look.seed for look in policy.looks)
    assert first == second != third


IMAGE, STATE = np.zeros((4, 4, 3), np.uint8), np.zeros(8)
GOOD = {"observation/image": IMAGE, "observation/state": STATE, "prompt": "go"}


@pytest.mark.parametrize(
    ("request_map", "reason"),
    [
        ({**GOOD, "prompt": "fail"}, "not finite"),
        ({"observation/state": STATE, "prompt": "go"}, "no image; expected observation/image"),
        ({**GOOD, "observation/image": IMAGE.astype(np.float32)}, "expected uint8 .*found float32"),
        ({**GOOD, "observation/image": np.zeros((99, 4, 3), np.uint8)}, "at most 64 pixels"),
        ({**GOOD, "observation/image": [1, 2]}, "found list"),
        ({**GOOD, "observation/state": "x"}, "observation/state: expected an array"),
        ({**GOOD, "prompt": 3}, "prompt: expected text"),
        ({**GOOD, "prompt": "x" * 99}, "at most 50 characters"),
        ({**GOOD, "seed": -1}, "seed: expected"),
    ],
)
def test_a_bad_request_is_answered_in_words_and_the_server_lives(request_map, reason, hasty, make_look):
    with serving(Echo(), image_side=64, prompt_characters=50) as url:
        with connect(url) as connection:
            connection.recv()
            connection.send(pack_openpi(request_map))
            answer = connection.recv()
            assert isinstance(answer, str)
            assert re.search(reason, answer)
        client = OpenpiPolicy(url, hasty)
        assert client.act([make_look()])[0].shape == (2, 7)
        client.close()


def test_what_is_too_large_or_too_many_is_refused(hasty, make_look):
    with serving(Echo(), request_bytes=1000, connections=1) as url, connect(url) as connection:
        connection.recv()
        with connect(url) as second, pytest.raises(Exception, match="more than 1 connections"):
            second.recv()
        connection.send(b"x" * 2000)
        with pytest.raises(Exception, match="1009"):
            connection.recv()


def test_healthz_is_plain_http():
    with serving(Echo()) as url:
        answer = httpx.get(url.replace("ws", "http") + "/healthz")
    assert (answer.status_code, answer.text) == (200, "OK\n")
