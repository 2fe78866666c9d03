"""Small policy servers, written to the published formats and not by our own packing."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from websockets.sync.server import serve

from harness.plan import EpisodeKey
from harness.policies.base import Look
from harness.policies.lane import Patience

HASTY = Patience(connect_seconds=5.0, answer_seconds=1.0, tries=2, pause_seconds=0.05)


@pytest.fixture
def hasty():
    return HASTY


def look(state=0, replan=0, cameras=("agentview", "robot0_eye_in_hand"), seed=12345678901234567):
    key = EpisodeKey(task_suite="libero_object", task=0, initial_state=state, seed=7)
    image = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    return Look(key, replan, {name: image + number for number, name in enumerate(cameras)}, np.arange(8.0), "go", seed)


@pytest.fixture
def make_look():
    return look


@contextmanager
def _websocket_server(handler):
    server = serve(handler, "127.0.0.1", 0, compression=None)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    host, port = server.socket.getsockname()[:2]
    try:
        yield f"ws://{host}:{port}"
    finally:
        server.shutdown()
        thread.join()


@pytest.fixture
def websocket_server():
    return _websocket_server


@contextmanager
def _http_server(answer):
    """`answer(path, content type, body)` gives a status and a body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, text = answer(self.path, self.headers["Content-Type"], body)
            data = text.encode() if isinstance(text, str) else json.dumps(text).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def http_server():
    return _http_server
