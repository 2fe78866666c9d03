"""Client of openpi's policy server (`src/openpi/serving/websocket_policy_server.py`), and of ours.

The server greets with a map, then answers one request at a time per connection; an error is a text message. The format
has no episode, no seed and no batch: several looks travel over as many connections. Our own server says in its greeting
that it takes a seed; it gets one, and then answers exactly as the checkpoint in process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection

from harness.plan import EpisodeKey
from harness.policies.base import Chunk, Look, PolicyFault
from harness.policies.lane import Lane, Patience, ask_all
from harness.policies.wire import pack_openpi, unpack_openpi

KEYS = {"agentview": "observation/image", "robot0_eye_in_hand": "observation/wrist_image"}
"""Camera → key of its image, from openpi's `examples/libero/main.py`."""
STATE_KEY, PROMPT_KEY = "observation/state", "prompt"
SEED_KEY = "seed"
"""Ours: only sent to a server whose greeting holds `TAKES_SEED`."""
TAKES_SEED = "takes_seed"


class OpenpiPolicy:
    """A policy behind `ws://host:port`.

    Args:
        url: `ws://` or `wss://`.
        patience: how long to wait for the server.
    """

    def __init__(self, url: str, patience: Patience | None = None) -> None:
        self._url, self._patience = url, patience or Patience()
        self._lanes: list[Lane] = []
        self.greeting: dict[str, Any] = {}
        """What the server said of itself; empty before the first connection."""

    def act(self, looks: list[Look]) -> list[Chunk]:
        """One chunk per look, in the dtype the server answers in.

        Raises:
            PolicyFault: no connection, no answer in time, an error message, or an answer that is no chunk.
        """
        while len(self._lanes) < len(looks):
            self._lanes.append(Lane(self._url, self._patience, self._greet))
        if not self.greeting and looks:
            self._lanes[0].open()
        answers = ask_all(self._lanes[: len(looks)], [pack_openpi(self._request(look)) for look in looks])
        return [_chunk(answer) for answer in answers]

    def ended(self, key: EpisodeKey, success: bool) -> None:
        """openpi keeps nothing per episode."""

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()

    def _greet(self, connection: ClientConnection) -> None:
        greeting = connection.recv(timeout=self._patience.connect_seconds)
        if isinstance(greeting, str):
            raise PolicyFault(f"{self._url} greets with text, not with openpi's metadata: {greeting[:200]}")
        self.greeting = unpack_openpi(greeting)

    def _request(self, look: Look) -> dict[str, Any]:
        request: dict[str, Any] = {
            KEYS.get(camera, f"observation/{camera}"): image for camera, image in look.images.items()
        }
        request |= {STATE_KEY: look.state, PROMPT_KEY: look.prompt}
        if self.greeting.get(TAKES_SEED):
            request[SEED_KEY] = look.seed
        return request


def _chunk(answer: bytes | str) -> Chunk:
    if isinstance(answer, str):
        raise PolicyFault(f"the server answers with an error: {last_line(answer)}")
    found = unpack_openpi(answer)
    actions = found.get("actions")
    if not isinstance(actions, np.ndarray):
        raise PolicyFault(f'the answer has no array "actions"; it has {", ".join(map(str, found)) or "nothing"}')
    return actions


def last_line(text: str) -> str:
    """Of a traceback, the line that says what was wrong."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"
