"""Simulator processes on a Ray cluster (extra `[ray]`). Each connects back to the pool, to which it is a pipe like any.

The cluster is the one at `RAY_ADDRESS`, else one is started on this machine. Every node needs the harness installed.
"""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Any

from harness.errors import MachineFault
from harness.libero.records import Protocol
from harness.libero.worker import ONE_THREAD

PLACE_SECONDS = 180.0
"""A simulator that has not connected by then has found no place. Starting Ray's process and ours takes 5 to 30 s."""

_GOODBYE_SECONDS = 10.0
_BYTES = 2 * 2**30
"""Memory that a simulator asks of its node."""


class _RaySimulatorProcess:
    """The actor. Its process serves the pool until there is nothing left to play."""

    def run(self, address: tuple[str, int], key: bytes, protocol: Protocol) -> None:
        from harness.libero.pool_worker import serve

        with Client(address, authkey=key) as pipe:
            serve(pipe, None, protocol)  # Ray ends the process with the pool's


@dataclass
class RaySimulator:
    """A process on some node."""

    ray: Any
    actor: Any
    done: Any
    pipe: Connection

    def kill(self) -> None:
        self.ray.kill(self.actor, no_restart=True)
        self.pipe.close()

    def leave(self) -> None:
        with suppress(OSError):
            self.pipe.send(None)
        self.ray.wait([self.done], timeout=_GOODBYE_SECONDS)
        self.kill()

    def epitaph(self) -> str:
        try:
            self.ray.get(self.done, timeout=5)
        except Exception as error:  # whatever Ray knows of it
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
        return "it ended by itself"


class RayExecutor:
    """Places simulators wherever the cluster has a CPU and 2 GiB to spare.

    Raises:
        MachineFault: Ray is not installed, or the cluster does not answer.
    """

    def __init__(self) -> None:
        try:
            import ray
        except ImportError:
            raise MachineFault("Ray is not installed: pip install 'vla-harness[ray]'") from None
        self._ray, self._started = ray, not ray.is_initialized()
        if self._started:
            address = os.environ.get("RAY_ADDRESS")
            alone = {} if address else {"include_dashboard": False}
            try:
                ray.init(address=address, log_to_driver=False, **alone)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise MachineFault(f"no Ray cluster at {address}: {error}") from None
        self._key = secrets.token_bytes(32)
        self._door = socket.create_server((ray.util.get_node_ip_address(), 0))
        self._door.settimeout(PLACE_SECONDS)
        self._actor = ray.remote(_RaySimulatorProcess)

    def start(self, number: int, protocol: Protocol) -> RaySimulator:
        """Raises MachineFault when the cluster finds no place for it in time."""
        actor = self._actor.options(
            num_cpus=1, memory=_BYTES, max_restarts=0, runtime_env={"env_vars": ONE_THREAD}
        ).remote()
        done = actor.run.remote(self._door.getsockname(), self._key, protocol)
        try:
            accepted, _ = self._door.accept()
        except TimeoutError:
            self._ray.kill(actor)
            raise MachineFault(
                f"Ray found no place for simulator {number} within {PLACE_SECONDS:.0f} s; each takes a CPU and 2 GiB, "
                f"and the cluster has free: {self._ray.available_resources()}"
            ) from None
        accepted.settimeout(None)
        pipe = Connection(accepted.detach())
        deliver_challenge(pipe, self._key)
        answer_challenge(pipe, self._key)
        return RaySimulator(self._ray, actor, done, pipe)

    def close(self) -> None:
        self._door.close()
        if self._started:
            self._ray.shutdown()
