import base64
import io
import json
import time
from email.parser import BytesParser

import numpy as np
import pytest
from PIL import Image

from harness.policies.base import PolicyFault
from harness.policies.dexbotic import DexboticPolicy, DexboticV1Policy

CHUNK = [[0.1 * step] * 6 + [-1.0] for step in range(4)]


def parts(content_type, body):
    """Name, file name and content of each part of a form."""
    form = BytesParser().parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    disposition = "content-disposition"
    return [
        (part.get_param("name", header=disposition), part.get_filename(), part.get_payload(decode=True))
        for part in form.get_payload()
    ]


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize("answer", [CHUNK, [CHUNK]], ids=["chunk", "batch of one"])
def test_process_frame(http_server, make_look, hasty, answer):
    seen = []

    def server(path, content_type, body):
        seen.append((path, parts(content_type, body)))
        return 200, {"response": answer}

    with http_server(server) as url:
        policy = DexboticPolicy(url, hasty)
        chunks = policy.act([make_look(), make_look(1, replan=3)])
        policy.close()
    assert [chunk.tolist() for chunk in chunks] == [CHUNK, CHUNK]
    path, form = seen[0]
    assert path == "/process_frame"
    fields = {name: content.decode() for name, file, content in form if file is None}
    assert fields == {
        "text": "go",
        "temperature": "0.8",
        "episode_first_frame": "True",
        "states": json.dumps([float(x) for x in range(8)]),
    }
    images = [(name, pixels(content)) for name, file, content in form if file is not None]
    assert [name for name, _ in images] == ["image", "image"]
    for (_, found), sent in zip(images, make_look().images.values(), strict=True):
        assert (found == sent).all()
    again = {name: content for name, file, content in seen[1][1] if file is None}
    assert again["episode_first_frame"] == b"False"


def test_one_image_travels_without_the_state(http_server, make_look, hasty):
    seen = []

    def server(path, content_type, body):
        seen.append([name for name, _, _ in parts(content_type, body)])
        return 200, {"response": CHUNK}

    with http_server(server) as url:
        DexboticPolicy(url, hasty).act([make_look(cameras=("agentview",))])
    assert sorted(seen[0]) == ["episode_first_frame", "image", "temperature", "text"]


def test_v1_infer(http_server, make_look, hasty):
    seen = []

    def server(path, content_type, body):
        seen.append((path, json.loads(body)))
        return 200, {"actions": CHUNK, "metadata": {"latency_ms": 1.0}}

    with http_server(server) as url:
        (chunk,) = DexboticV1Policy(url, hasty).act([make_look()])
    assert chunk.tolist() == CHUNK
    path, request = seen[0]
    assert path == "/v1/infer"
    observation = request["observation"]
    assert observation["prompt"] == "go"
    assert observation["state"] == list(range(8))
    assert sorted(observation["images"]) == ["1", "2"]
    sent = make_look().images["robot0_eye_in_hand"]
    assert (pixels(base64.b64decode(observation["images"]["2"])) == sent).all()
    assert request["sampling"] == {"seed": 12345678901234567 % 2**31}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, "<html>Internal Server Error</html>", "status 500: <html>Internal"),
        (400, {"error": "state missing"}, "status 400: .*state missing"),
        (200, "not json", "not JSON"),
        (200, {"actionz": []}, 'no "(response|actions)"; it has actionz'),
        (200, {"response": [["a"]], "actions": [["a"]]}, "not an array of numbers"),
        (200, {"response": [[1], [1, 2]], "actions": [[1], [1, 2]]}, "not an array of numbers"),
        (200, [1, 2], "it has list"),
    ],
)
@pytest.mark.parametrize("client", [DexboticPolicy, DexboticV1Policy])
def test_a_wrong_answer_is_a_fault(http_server, make_look, hasty, client, status, body, reason):
    with http_server(lambda *_: (status, body)) as url, pytest.raises(PolicyFault, match=reason):
        client(url, hasty).act([make_look()])


def test_a_dead_or_silent_server_is_a_fault(http_server, make_look, hasty):
    with pytest.raises(PolicyFault, match="no connection"):
        DexboticPolicy("http://127.0.0.1:9", hasty).act([make_look()])

    def slow(*_):
        time.sleep(1.5)
        return 200, {"response": CHUNK}

    with http_server(slow) as url, pytest.raises(PolicyFault, match="no answer within 1 s"):
        DexboticPolicy(url, hasty).act([make_look()])
