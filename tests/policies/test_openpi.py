import time

import msgpack
import numpy as np
import pytest

from harness.policies.base import PolicyFault
from harness.policies.openpi import OpenpiPolicy
from harness.policies.wire import pack_openpi, unpack_openpi


def array(values):
    """As openpi's msgpack_numpy writes one."""
    return {b"__ndarray__": True, b"data": values.tobytes(), b"dtype": values.dtype.str, b"shape": values.shape}


def plain(request):
    """A request, its arrays read as openpi's msgpack_numpy does."""

    def hook(found):
        if b"__ndarray__" in found:
            return np.ndarray(buffer=found[b"data"], dtype=np.dtype(found[b"dtype"]), shape=found[b"shape"])
        return found

    return msgpack.unpackb(request, object_hook=hook)


CHUNK = np.linspace(-1, 1, 35).reshape(5, 7)


def test_a_request_and_an_answer_in_openpis_format(websocket_server, make_look, hasty):
    seen = []

    def handler(connection):
        connection.send(msgpack.packb({"name": "pi0_libero"}))
        for request in connection:
            seen.append(plain(request))
            connection.send(msgpack.packb({"actions": array(CHUNK), "server_timing": {"infer_ms": 3.0}}))

    with websocket_server(handler) as url:
        policy = OpenpiPolicy(url, hasty)
        (chunk,) = policy.act([make_look()])
        policy.close()
    assert chunk.dtype == np.float64
    assert (chunk == CHUNK).all()
    assert policy.greeting == {"name": "pi0_libero"}
    (request,) = seen
    assert set(request) == {"observation/image", "observation/wrist_image", "observation/state", "prompt"}
    assert request["observation/image"].dtype == np.uint8
    assert (request["observation/image"] == make_look().images["agentview"]).all()
    assert (request["observation/wrist_image"] == make_look().images["robot0_eye_in_hand"]).all()
    assert request["observation/state"].tolist() == list(range(8))
    assert request["prompt"] == "go"


def test_looks_of_a_batch_travel_together_and_keep_their_order(websocket_server, make_look, hasty):
    waiting = []

    def handler(connection):
        connection.send(msgpack.packb({}))
        for request in connection:
            waiting.append(plain(request)["prompt"])
            while len(waiting) < 3:  # answers only when all three are there
                time.sleep(0.005)
            value = float(plain(request)["observation/state"][0])
            connection.send(msgpack.packb({"actions": array(np.full((2, 7), value))}))

    looks = [make_look(state) for state in range(3)]
    for number, each in enumerate(looks):
        each.state[0] = number
    with websocket_server(handler) as url:
        policy = OpenpiPolicy(url, hasty)
        chunks = policy.act(looks)
        policy.close()
    assert [chunk[0, 0] for chunk in chunks] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Traceback (most recent call last):\n  …\nKeyError: 'observation/image'\n", "KeyError"),
        (msgpack.packb({"action": [1, 2]}), 'no array "actions"; it has action'),
        (b"\xc1 not msgpack", "not a readable msgpack"),
        (msgpack.packb([1, 2]), "must be a map"),
        (
            msgpack.packb({b"__ndarray__": True, b"data": b"", b"dtype": "|O", b"shape": [0]}),
            "do not travel",
        ),
    ],
)
def test_a_wrong_answer_is_a_fault_and_the_next_look_is_served(websocket_server, make_look, hasty, answer, reason):
    answers = [answer, msgpack.packb({"actions": array(CHUNK)})]

    def handler(connection):
        connection.send(msgpack.packb({}))
        for _ in connection:
            connection.send(answers.pop(0))

    with websocket_server(handler) as url:
        policy = OpenpiPolicy(url, hasty)
        with pytest.raises(PolicyFault, match=reason):
            policy.act([make_look()])
        assert (policy.act([make_look()])[0] == CHUNK).all()
        policy.close()


def test_a_silent_server_is_a_fault_and_its_late_answer_is_not_taken(websocket_server, make_look, hasty):
    calls = []

    def handler(connection):
        connection.send(msgpack.packb({}))
        for _ in connection:
            calls.append(1)
            if len(calls) == 1:
                time.sleep(1.5)
            connection.send(msgpack.packb({"actions": array(np.full((1, 7), float(len(calls))))}))

    with websocket_server(handler) as url:
        policy = OpenpiPolicy(url, hasty)
        with pytest.raises(PolicyFault, match="no answer within 1 s"):
            policy.act([make_look()])
        assert policy.act([make_look()])[0][0, 0] == 2.0
        policy.close()


def test_a_lost_connection_is_made_anew_and_the_look_sent_again(websocket_server, make_look, hasty):
    calls = []

    def handler(connection):
        connection.send(msgpack.packb({}))
        for _ in connection:
            calls.append(1)
            if len(calls) == 1:
                return
            connection.send(msgpack.packb({"actions": array(CHUNK)}))

    with websocket_server(handler) as url:
        policy = OpenpiPolicy(url, hasty)
        assert (policy.act([make_look()])[0] == CHUNK).all()
        policy.close()
    assert len(calls) == 2


def test_a_server_that_is_not_there_or_not_openpi_is_a_fault(websocket_server, http_server, make_look, hasty):
    with pytest.raises(PolicyFault, match=r"no connection .*refused"):
        OpenpiPolicy("ws://127.0.0.1:9", hasty).act([make_look()])
    talker = websocket_server(lambda connection: connection.send("hello there"))
    with talker as url, pytest.raises(PolicyFault, match="greets with text"):
        OpenpiPolicy(url, hasty).act([make_look()])
    with http_server(lambda *_: (200, "x")) as url, pytest.raises(PolicyFault, match="no connection"):
        OpenpiPolicy(url.replace("http", "ws"), hasty).act([make_look()])


@pytest.mark.parametrize("dtype", ["|u1", "<f4", "<f8", "<i8", "|b1"])
def test_arrays_come_back_as_they_went(dtype):
    values = (np.arange(12).reshape(3, 4) % 2).astype(dtype)
    back = unpack_openpi(pack_openpi({"a": values, "n": np.float32(1.5)}))
    assert back["a"].dtype == values.dtype
    assert (back["a"] == values).all()
    assert back["n"] == 1.5
