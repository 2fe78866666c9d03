"""WebSocket connections to a policy server that may be slow, restart, or be gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from websockets.exceptions import ConnectionClosed, InvalidURI, WebSocketException
from websockets.sync.client import ClientConnection, connect

from harness.policies.base import PolicyFault

MAX_ANSWER_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Patience:
    """How long a client waits for its server.

    Attributes:
        connect_seconds: for a connection to open, and for the server's greeting.
        answer_seconds: for one answer. The first may hold a compilation: JAX and torch.compile take minutes.
        tries: connections that are tried for one request.
        pause_seconds: before the second try; doubled before each further one.
    """

    connect_seconds: float = 10.0
    answer_seconds: float = 300.0
    tries: int = 3
    pause_seconds: float = 1.0

    def pauses(self) -> list[float]:
        """Seconds to wait before each try."""
        return [0.0] + [self.pause_seconds * 2**index for index in range(self.tries - 1)]


class Lane:
    """One connection, made when it is first needed and made anew after it was lost.

    Args:
        url: `ws://` or `wss://`.
        greet: speaks the first words on a new connection; raises PolicyFault when the server is not the right one.
    """

    def __init__(self, url: str, patience: Patience, greet: Callable[[ClientConnection], None]) -> None:
        self._url, self._patience, self._greet = url, patience, greet
        self._connection: ClientConnection | None = None
        self._opened = ExitStack()

    def open(self) -> None:
        """Connects, where there is no connection. Raises PolicyFault after the last try."""
        self._try(lambda _: None)

    def send(self, message: bytes) -> None:
        """Sends, over a new connection where there is none. Raises PolicyFault after the last try."""
        self._try(lambda connection: connection.send(message))

    def send_on(self, message: bytes) -> None:
        """Sends over the connection there is: for servers that keep a session. Raises PolicyFault if it was lost."""
        try:
            if self._connection is None:
                raise ConnectionError("not connected")
            self._connection.send(message)
        except (OSError, WebSocketException) as error:
            self.close()
            raise PolicyFault(f"{self._url}: the connection was lost ({_spoken(error)})") from None

    def _try(self, step: Callable[[ClientConnection], None]) -> None:
        reason = ""
        for pause in self._patience.pauses():
            time.sleep(pause)
            try:
                step(self._connected())
                return
            except (OSError, WebSocketException) as error:
                reason = _spoken(error)
                self.close()
                if isinstance(error, InvalidURI):
                    break
        raise PolicyFault(f"{self._url}: no connection ({reason})")

    def receive(self) -> bytes | str:
        """The next message.

        Raises:
            PolicyFault: none within `Patience.answer_seconds`; the connection is given up, for its answer would come
                late and be taken for the next one's.
            ConnectionError: the connection was lost.
        """
        if self._connection is None:
            raise ConnectionError("not connected")
        try:
            return self._connection.recv(timeout=self._patience.answer_seconds)
        except TimeoutError:
            self.close()
            raise PolicyFault(f"{self._url}: no answer within {self._patience.answer_seconds:g} s") from None
        except (OSError, ConnectionClosed) as error:
            self.close()
            raise ConnectionError(_spoken(error)) from None

    def close(self) -> None:
        self._connection = None
        with suppress(OSError, WebSocketException):
            self._opened.close()

    def _connected(self) -> ClientConnection:
        if self._connection is None:
            # No pings: a server that compiles or computes does not answer them. No proxy: what speaks WebSocket here
            # is a machine of one's own, and HTTP proxies of the environment break it.
            opening = connect(
                self._url,
                compression=None,
                max_size=MAX_ANSWER_BYTES,
                open_timeout=self._patience.connect_seconds,
                close_timeout=1.0,
                ping_interval=None,
                proxy=None,
            )
            connection = self._opened.enter_context(opening)
            try:
                self._greet(connection)
            except BaseException:
                self.close()
                raise
            self._connection = connection
        return self._connection


def ask_all(lanes: list[Lane], requests: list[bytes]) -> list[bytes | str]:
    """One request and one answer per lane; all are sent before the first answer is awaited, so that a server may batch.

    A request whose connection is lost is sent once more, over a new one: for servers that keep no session.

    Raises:
        PolicyFault: the server does not answer, however often it is tried. No lane is left with an answer in it.
    """
    answers: list[bytes | str] = []
    try:
        for lane, request in zip(lanes, requests, strict=True):
            lane.send(request)
        for lane, request in zip(lanes, requests, strict=True):
            try:
                answers.append(lane.receive())
            except ConnectionError:
                lane.send(request)
                answers.append(_last_word(lane))
    except BaseException:
        for lane in lanes[len(answers) :]:
            lane.close()
        raise
    return answers


def _last_word(lane: Lane) -> bytes | str:
    try:
        return lane.receive()
    except ConnectionError as error:
        raise PolicyFault(f"the server closed the connection twice instead of answering ({error})") from None


def _spoken(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
