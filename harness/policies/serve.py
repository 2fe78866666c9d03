"""Our checkpoints for other people's evaluators: openpi's WebSocket protocol, and `GET /healthz` on the same port.

Whoever can reach the port can run the model, hence loopback unless told otherwise. What arrives is read as data only
(`harness.policies.wire`), up to a size; an image is bounded besides. An error is a text message, as in openpi, after
which the connection is closed.
"""

from __future__ import annotations

import hashlib
import http
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection
from websockets.sync.server import serve as serve_websocket

from harness.plan import EpisodeKey
from harness.policies.base import Look, Policy, PolicyFault
from harness.policies.openpi import KEYS, PROMPT_KEY, SEED_KEY, STATE_KEY, TAKES_SEED
from harness.policies.wire import pack_openpi, unpack_openpi

_ERROR_CODE = 1011
"""WebSocket's "internal error", which openpi's server closes with."""
_NO_EPISODE = EpisodeKey(task_suite="libero_object", task=0, initial_state=0, seed=0)
"""openpi's requests name no episode, and no policy served here asks for one."""


@dataclass(frozen=True)
class Limits:
    """What a client may ask for.

    Attributes:
        request_bytes: a larger message closes the connection.
        image_side: pixels in height and in width.
        prompt_characters: of the instruction.
        connections: open at a time; a further one is refused with status 503.
    """

    request_bytes: int = 16 * 2**20
    image_side: int = 2048
    prompt_characters: int = 4096
    connections: int = 64


class PolicyServer:
    """Serves one policy. Requests of all connections are answered one after the other.

    Args:
        policy: its answers must depend on the look alone.
        metadata: what it says of itself in the greeting, beside that it takes a seed.
        host, port: where to listen; port 0 takes a free one.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(
        self, policy: Policy, metadata: dict[str, Any], host: str, port: int, limits: Limits | None = None
    ) -> None:
        self._policy, self._limits = policy, limits or Limits()
        self._greeting = pack_openpi({**metadata, TAKES_SEED: True})
        self._turn = threading.Lock()
        self._free = threading.BoundedSemaphore(self._limits.connections)
        self._server: Server = serve_websocket(
            self._connection,
            host,
            port,
            process_request=self._plain_http,
            compression=None,
            max_size=self._limits.request_bytes,
            ping_interval=None,
        )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on."""
        host, port = self._server.socket.getsockname()[:2]
        return str(host), int(port)

    def run(self) -> None:
        """Serves until `stop` is called, from another thread or a signal handler."""
        self._server.serve_forever()

    def stop(self) -> None:
        self._server.shutdown()

    def _plain_http(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/healthz":
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        return None

    def _connection(self, connection: ServerConnection) -> None:
        if not self._free.acquire(blocking=False):
            connection.close(_ERROR_CODE, f"more than {self._limits.connections} connections")
            return
        try:
            connection.send(self._greeting)
            last_seconds: float | None = None
            for message in connection:
                started = time.monotonic()
                connection.send(self._answer(message, last_seconds))
                last_seconds = time.monotonic() - started
        except PolicyFault as fault:
            self._refuse(connection, str(fault))
        except ConnectionClosed:
            pass
        finally:
            self._free.release()

    def _refuse(self, connection: ServerConnection, reason: str) -> None:
        try:
            connection.send(reason)
            connection.close(_ERROR_CODE, "see the message before")
        except ConnectionClosed:
            pass

    def _answer(self, message: bytes | str, last_seconds: float | None) -> bytes:
        if isinstance(message, str):
            raise PolicyFault("a request must be binary msgpack")
        look = read_look(unpack_openpi(message), message, self._limits)
        with self._turn:
            started = time.monotonic()
            chunk = self._policy.act([look])[0]
            seconds = time.monotonic() - started
        timing = {"infer_ms": seconds * 1e3}
        if last_seconds is not None:
            timing["prev_total_ms"] = last_seconds * 1e3
        return pack_openpi({"actions": chunk, "policy_timing": {"infer_ms": seconds * 1e3}, "server_timing": timing})


def read_look(request: dict[str, Any], message: bytes, limits: Limits) -> Look:
    """A request as a look. Without a seed in it, the noise is seeded by the request's own bytes: asked again, a request
    gets the same answer.

    Raises:
        PolicyFault: something is missing, of the wrong kind, or too large.
    """
    images = {camera: _image(request[key], key, limits) for camera, key in KEYS.items() if key in request}
    if not images:
        raise PolicyFault(f"no image; expected {' and '.join(KEYS.values())}, found {', '.join(map(str, request))}")
    state, prompt, seed = request.get(STATE_KEY), request.get(PROMPT_KEY), request.get(SEED_KEY)
    if not isinstance(state, np.ndarray) or state.ndim != 1 or state.dtype.kind not in "fiu":
        raise PolicyFault(f"{STATE_KEY}: expected an array of numbers in one dimension")
    if not isinstance(prompt, str) or len(prompt) > limits.prompt_characters:
        raise PolicyFault(f"{PROMPT_KEY}: expected text of at most {limits.prompt_characters} characters")
    if seed is None:
        seed = int.from_bytes(hashlib.sha256(message).digest()[:8], "big") >> 1
    if not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise PolicyFault(f"{SEED_KEY}: expected a whole number from 0 to 2^63 − 1")
    return Look(_NO_EPISODE, 0, images, state.astype(np.float64), prompt, seed)


def _image(value: Any, key: str, limits: Limits) -> NDArray[np.uint8]:
    good = isinstance(value, np.ndarray) and value.ndim == 3 and value.shape[2] == 3 and value.dtype == np.uint8
    if not good or not 0 < max(value.shape[:2]) <= limits.image_side:
        found = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise PolicyFault(
            f"{key}: expected uint8 (H, W, 3) of at most {limits.image_side} pixels a side, found {found}"
        )
    image: NDArray[np.uint8] = value
    return image


def serve_checkpoint(
    policy: Policy, metadata: dict[str, Any], host: str, port: int, on_ready: Callable[[str], None]
) -> None:
    """Serves until interrupted; `on_ready` is told the URL."""
    server = PolicyServer(policy, metadata, host, port)
    on_ready("ws://{}:{}".format(*server.address))
    try:
        server.run()
    finally:
        server.stop()
