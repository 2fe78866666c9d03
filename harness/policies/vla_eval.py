"""Client of a vla-eval model server (protocol version 1; `src/vla_eval/connection.py`, `model_servers/serve.py`).

The server holds the chunk: it wants an observation at every control step and answers with one action. Hence one
connection per running episode, and a protocol with `replan_steps = 1`. Its greeting says what it must be shown; what
cannot be had here is refused before anything is run.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from websockets.sync.client import ClientConnection

from harness import __version__
from harness.plan import EpisodeKey
from harness.policies.base import Chunk, Look, PolicyFault
from harness.policies.lane import Lane, Patience
from harness.policies.wire import pack_vla_eval, unpack_vla_eval

PROTOCOL_VERSION = 1
_CAMERAS = {"agentview": "agentview", "robot0_eye_in_hand": "wrist"}
_KNOWN_WISHES = frozenset({"send_wrist_image", "send_state", "quat_no_antipodal"})


@dataclass
class _Session:
    """One connection, and the episode it is in."""

    lane: Lane
    key: EpisodeKey | None = None
    sequence: int = 0
    answered: int = -1
    """The last look that was answered."""
    answer: Chunk | PolicyFault | None = None
    """What it was answered with; kept, for a batch in which another look failed is asked again look by look."""


class VlaEvalPolicy:
    """A policy behind vla-eval's `ws://host:port`.

    Args:
        url: `ws://` or `wss://`.
        patience: how long to wait for the server.
    """

    def __init__(self, url: str, patience: Patience | None = None) -> None:
        self._url, self._patience = url, patience or Patience()
        self._sessions: list[_Session] = []
        self.greeting: dict[str, Any] = {}
        """What the server said of itself; empty before the first connection."""

    def act(self, looks: list[Look]) -> list[Chunk]:
        """One action (1, 7) per look, or (T, 7) from a server that sends whole chunks.

        Raises:
            PolicyFault: no connection, no answer in time, an error message, a look out of order, or a server that
                wants what is not to be had. A lost connection is not made anew within an episode: the server would
                have forgotten its chunk.
        """
        sent = [(look, self._send_look(look)) for look in looks]
        answers = [self._receive(look, session) for look, session in sent]
        chunks = [answer for answer in answers if not isinstance(answer, PolicyFault)]
        if len(chunks) < len(looks):
            raise next(answer for answer in answers if isinstance(answer, PolicyFault))
        return chunks

    def ended(self, key: EpisodeKey, success: bool) -> None:
        """Tells the server, and frees the episode's connection for another one."""
        for session in self._sessions:
            if session.key == key:
                session.key = None
                with suppress(PolicyFault):  # the next episode will say so, if it lasts
                    self._send(session, "episode_end", {"success": success})

    def close(self) -> None:
        for session in self._sessions:
            session.lane.close()

    def _send_look(self, look: Look) -> _Session:
        """Sends a look on its episode's connection, unless it has been answered already."""
        session = self._session(look)
        if look.replan > 0 and session.answered == look.replan:
            return session
        session.answer = None
        try:
            if look.replan == 0:
                session.sequence += 1
                session.lane.send(_message("episode_start", {"task": _task(look)}, session.sequence))
            elif session.answered != look.replan - 1:
                raise PolicyFault("the server's session of this episode was lost")
            self._send(session, "observation", self._observation(look))
        except PolicyFault as fault:
            session.answer, session.answered = fault, look.replan
        return session

    def _receive(self, look: Look, session: _Session) -> Chunk | PolicyFault:
        if session.answer is None:
            try:
                session.answer = self._action(session)
            except PolicyFault as fault:
                session.answer = fault
                session.lane.close()  # an answer under way would be taken for the next one's
            session.answered = look.replan
        return session.answer

    def _session(self, look: Look) -> _Session:
        """The connection that is in the look's episode; at its first look, a free one."""
        found = next((session for session in self._sessions if session.key == look.key), None)
        free = next((session for session in self._sessions if session.key is None), None)
        session = found or free
        if session is None:
            session = _Session(Lane(self._url, self._patience, self._greet))
            self._sessions.append(session)
        if found is None:
            session.key, session.answered, session.answer = look.key, -1, None
        return session

    def _send(self, session: _Session, kind: str, payload: dict[str, Any]) -> None:
        session.sequence += 1
        session.lane.send_on(_message(kind, payload, session.sequence))

    def _observation(self, look: Look) -> dict[str, Any]:
        wishes = self.greeting.get("observation_params", {})
        images = {_CAMERAS.get(camera, camera): image for camera, image in look.images.items()}
        if not wishes.get("send_wrist_image"):
            images.pop("wrist", None)
        elif "wrist" not in images:
            raise PolicyFault("the server wants the wrist camera, which the protocol does not show")
        shown: dict[str, Any] = {"images": images, "task_description": look.prompt}
        if wishes.get("send_state"):
            shown["states"] = look.state if wishes.get("quat_no_antipodal") else shortest_rotation(look.state)
        return shown

    def _action(self, session: _Session) -> Chunk:
        try:
            answer = session.lane.receive()
        except ConnectionError as error:
            raise PolicyFault(f"{self._url}: the connection was lost ({error})") from None
        if isinstance(answer, str):
            raise PolicyFault(f"{self._url} answers with text: {answer[:200]}")
        found = unpack_vla_eval(answer)
        payload = found.get("payload")
        if not isinstance(payload, dict):
            raise PolicyFault(f"the server's message has no payload: {', '.join(map(str, found))}")
        if found.get("type") != "action":
            raise PolicyFault(f"the server answers with {found.get('type')}: {payload.get('error', 'no reason given')}")
        if found.get("seq") != session.sequence:
            raise PolicyFault(f"the server answers observation {found.get('seq')}, not {session.sequence}")
        actions = payload.get("actions", payload.get("action"))
        if actions is None:
            raise PolicyFault(f'the answer has no "actions"; it has {", ".join(map(str, payload)) or "nothing"}')
        return np.atleast_2d(np.asarray(actions))

    def _greet(self, connection: ClientConnection) -> None:
        hello = {"harness_version": __version__, "protocol_version": PROTOCOL_VERSION, "benchmark": "libero"}
        connection.send(_message("hello", hello, 0))
        answer = connection.recv(timeout=self._patience.connect_seconds)
        if isinstance(answer, str):
            raise PolicyFault(f"{self._url} greets with text, not as a vla-eval server: {answer[:200]}")
        found = unpack_vla_eval(answer)
        if found.get("type") != "hello" or not isinstance(found.get("payload"), dict):
            raise PolicyFault(f"{self._url} does not greet as a vla-eval server")
        self.greeting = found["payload"]
        version = self.greeting.get("protocol_version")
        if version != PROTOCOL_VERSION:
            raise PolicyFault(f"{self._url} speaks vla-eval's protocol {version}, not {PROTOCOL_VERSION}")
        unknown = [
            f"{name} = {value!r}"
            for name, value in self.greeting.get("observation_params", {}).items()
            if value and name not in _KNOWN_WISHES
        ]
        if unknown:
            raise PolicyFault(f"the server wants what is not to be had here: {', '.join(unknown)}")


def _task(look: Look) -> dict[str, Any]:
    key = look.key
    return {
        "name": look.prompt,
        "suite": key.task_suite,
        "task_id": key.task,
        "episode_idx": key.initial_state,
    }


def _message(kind: str, payload: dict[str, Any], sequence: int) -> bytes:
    return pack_vla_eval({"type": kind, "payload": payload, "seq": sequence, "timestamp": time.time()})


def shortest_rotation(state: NDArray[np.float64]) -> NDArray[np.float64]:
    """The state (8,) with its axis-angle (elements 3 to 5) brought to an angle of at most π: vla-eval's default, where
    robosuite's own goes up to 2π (`quat_no_antipodal` switches it off)."""
    angle = float(np.linalg.norm(state[3:6]))
    if angle <= math.pi:
        return state
    turned = state.copy()
    turned[3:6] *= 1 - 2 * math.pi / angle
    return turned
