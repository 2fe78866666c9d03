"""Clients of Dexbotic's inference servers: `/process_frame` (`dexbotic/exp/*_exp.py`) and `/v1/infer` (opendm).

Neither has a health endpoint, and their servers answer one request at a time, so looks are sent one after the other.
"""

from __future__ import annotations

import base64
import json
import time
from abc import ABC, abstractmethod
from typing import Any

import httpx
import numpy as np

from harness.plan import EpisodeKey
from harness.policies.base import Chunk, Look, PolicyFault
from harness.policies.lane import Patience
from harness.policies.wire import png

_TEMPERATURE = "0.8"
"""What Dexbotic's benchmark sends to every server (`evaluation/policies/base_vla_agent.py`)."""
_SEED_BITS = 31
"""A seed must fit what servers seed with it; NumPy's takes 32 bits."""


class _Server(ABC):
    """A policy behind one of Dexbotic's servers, which keep nothing that must be freed when an episode ends.

    Args:
        url: `http://host:port`.
        patience: how long to wait for the server.
    """

    def __init__(self, url: str, patience: Patience | None = None) -> None:
        self._http = _Http(url, patience or Patience())

    def act(self, looks: list[Look]) -> list[Chunk]:
        """One chunk float64 (T, 7) per look. Raises PolicyFault when there is no answer, or none that is a chunk."""
        return [self._answer(look) for look in looks]

    def ended(self, key: EpisodeKey, success: bool) -> None:  # noqa: B027 - whole as it is
        """Tells the server nothing."""

    def close(self) -> None:
        self._http.close()

    @abstractmethod
    def _answer(self, look: Look) -> Chunk: ...


class DexboticPolicy(_Server):
    """A policy behind `POST /process_frame`; `episode_first_frame` tells it of a new episode.

    The state travels with the second image and not without it, as in the benchmark's configurations: one image and no
    state for CogACT, two and the state for pi0, pi05 and DM0.
    """

    def _answer(self, look: Look) -> Chunk:
        form = {"text": look.prompt, "temperature": _TEMPERATURE, "episode_first_frame": str(look.replan == 0)}
        if len(look.images) > 1:
            form["states"] = json.dumps(look.state.tolist())
        # Files without a name are form fields to Flask.
        files = [("image", ("image.png", png(image), "image/png")) for image in look.images.values()]
        actions = _actions(self._http.post("/process_frame", data=form, files=files), "response")
        return actions[0] if actions.ndim == 3 and len(actions) == 1 else actions


class DexboticV1Policy(_Server):
    """A policy behind `POST /v1/infer`: it takes a seed."""

    def _answer(self, look: Look) -> Chunk:
        numbered = enumerate(look.images.values(), 1)
        images = {str(number): base64.b64encode(png(image)).decode() for number, image in numbered}
        observation = {"prompt": look.prompt, "images": images, "state": look.state.tolist()}
        sampling = {"seed": look.seed % 2**_SEED_BITS}
        content = {"observation": observation, "sampling": sampling}
        return _actions(self._http.post("/v1/infer", json=content), "actions")


def _actions(answer: Any, key: str) -> Chunk:
    if not isinstance(answer, dict) or key not in answer:
        held = ", ".join(map(str, answer)) if isinstance(answer, dict) else type(answer).__name__
        raise PolicyFault(f'the answer has no "{key}"; it has {held or "nothing"}')
    try:
        return np.asarray(answer[key], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PolicyFault(f'"{key}" is not an array of numbers ({error})') from None


class _Http:
    """One server. A connection that cannot be made or is lost is tried again; an answer that does not come is not."""

    def __init__(self, url: str, patience: Patience) -> None:
        self._url, self._patience = url.rstrip("/"), patience
        timeout = httpx.Timeout(patience.answer_seconds, connect=patience.connect_seconds)
        # Without the environment: a proxy has no business between two processes of an evaluation.
        self._client = httpx.Client(base_url=self._url, timeout=timeout, trust_env=False)

    def post(self, path: str, **content: Any) -> Any:
        """The answer's JSON. Raises PolicyFault."""
        reason = ""
        for pause in self._patience.pauses():
            time.sleep(pause)
            try:
                return self._read(self._client.post(path, **content), path)
            except httpx.ReadTimeout:
                raise PolicyFault(f"{self._url}{path}: no answer within {self._patience.answer_seconds:g} s") from None
            except httpx.TransportError as error:
                reason = f"{type(error).__name__}: {error}"
            except httpx.HTTPError as error:
                raise PolicyFault(f"{self._url}{path}: {error}") from None
        raise PolicyFault(f"{self._url}{path}: no connection ({reason})")

    def close(self) -> None:
        self._client.close()

    def _read(self, response: httpx.Response, path: str) -> Any:
        if response.status_code != httpx.codes.OK:
            said = " ".join(response.text.split())[:200]
            raise PolicyFault(f"{self._url}{path}: status {response.status_code}: {said or 'no reason given'}")
        try:
            return response.json()
        except ValueError:
            raise PolicyFault(f"{self._url}{path}: the answer is not JSON") from None
