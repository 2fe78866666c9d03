"""A simulator process of the pool: one scene, one episode at a time, looks out and chunks in through a pipe."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from harness.errors import MachineFault
from harness.libero.episode import Ending, always, look_seed, never, play
from harness.libero.handicap import handicap_of
from harness.libero.records import Protocol
from harness.libero.tasks import task
from harness.plan import EpisodeKey
from harness.policies.base import Chunk, Look, PolicyFault
from harness.processes import die_with_parent

if TYPE_CHECKING:
    from harness.libero.expert import Expert
    from harness.libero.expert.graded import GradedExpert
    from harness.libero.scene import Scene

Brain = str
"""Who acts: `policy` in the parent, or inside the worker `expert`, `expert:…` with a handicap, or `still`."""

_BEAT_SECONDS = 5.0


@dataclass(frozen=True)
class Play:
    """From the parent: play this episode."""

    key: EpisodeKey
    brain: Brain


@dataclass(frozen=True)
class Answer:
    """From the parent, for the last look: a chunk, or the reason there is none."""

    chunk: Chunk | None
    reason: str | None = None


@dataclass(frozen=True)
class Beat:
    """From the worker: still at work."""


@dataclass(frozen=True)
class Broken:
    """From the worker: this machine cannot simulate at all."""

    message: str


@dataclass(frozen=True)
class Stumble:
    """From the worker: the simulator raised; the episode is worth another try."""

    reason: str


@dataclass(frozen=True)
class Finished:
    """From the worker: an episode came to its end."""

    outcome: Literal["success", "failure", "error", "uncovered"]
    reason: str | None
    scene_sha256: str
    looks: int
    actions: NDArray[np.float64]
    wall_seconds: float
    gl_vendor: str
    gl_renderer: str
    first_images_sha256: str | None = None
    last_images_sha256: str | None = None


def serve(pipe: Connection, parent: int | None, protocol: Protocol) -> None:
    """Plays the episodes that are sent, until None is or the parent is gone. The process's main function.

    Args:
        pipe: to the pool.
        parent: process id of the pool, with which to end; None where something else sees to that.
        protocol: what all episodes are run under.
    """
    if parent is not None:
        die_with_parent(parent)
    player = _Player(pipe, protocol)
    try:
        while (wanted := pipe.recv()) is not None:
            pipe.send(player.episode(wanted))
    except (EOFError, ConnectionError):
        pass  # nobody is left to play for
    finally:
        player.close()


class _Player:
    def __init__(self, pipe: Connection, protocol: Protocol) -> None:
        self._pipe, self._protocol = pipe, protocol
        self._scene: Scene | None = None
        self._last_beat = 0.0

    def episode(self, wanted: Play) -> Finished | Stumble | Broken:
        started = time.monotonic()
        try:
            return self._play(self._scene_for(wanted.key), wanted, started)
        except MachineFault as fault:
            return Broken(str(fault))
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            self.close()
            return Stumble(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        if self._scene is not None:
            scene, self._scene = self._scene, None
            scene.close()

    def _scene_for(self, key: EpisodeKey) -> Scene:
        from harness.libero.scene import Scene

        scene = self._scene
        if scene is None or (scene.task.task_suite, scene.task.number) != (key.task_suite, key.task):
            self._beat()
            self.close()
            self._scene = scene = Scene(task(key.task_suite, key.task), self._protocol)
        self._beat()
        return scene

    def _play(self, scene: Scene, wanted: Play, started: float) -> Finished:
        from harness.libero.expert import uncovered_reason

        key, seen = wanted.key, wanted.brain == "policy"
        start = scene.reset(key, look=seen)
        vendor, renderer = scene.gl_strings()

        def finished(ending: Ending | None, uncovered: str | None = None) -> Finished:
            seconds = time.monotonic() - started
            if ending is None:
                none = np.empty((0, 7))
                return Finished("uncovered", uncovered, start.scene_sha256, 0, none, seconds, vendor, renderer)
            return Finished(
                ending.outcome,
                ending.reason,
                start.scene_sha256,
                ending.looks,
                ending.actions,
                seconds,
                vendor,
                renderer,
                ending.first_images_sha256,
                ending.last_images_sha256,
            )

        if wanted.brain.startswith("expert"):
            uncovered = uncovered_reason(scene.world)
            if uncovered is not None:
                return finished(None, uncovered)
        episode = play(
            scene, start.observation, key, self._protocol, scene.task.prompt(self._protocol), always if seen else never
        )
        return finished(self._drive(episode, scene, wanted))

    def _drive(self, episode: Generator[Look, Chunk, Ending], scene: Scene, wanted: Play) -> Ending:
        from harness.libero.scene import NEUTRAL

        expert = _expert(wanted, scene)
        look = next(episode)
        try:
            while True:
                if wanted.brain == "policy":
                    self._pipe.send(look)
                    answer: Answer = self._pipe.recv()
                    if answer.chunk is None:
                        look = episode.throw(PolicyFault(answer.reason))
                    else:
                        look = episode.send(answer.chunk)
                else:
                    action = expert.act() if expert is not None else NEUTRAL
                    look = episode.send(action[None])
                    self._beat()
        except StopIteration as stop:
            ending: Ending = stop.value
            if expert is not None and ending.outcome == "failure":
                ending = replace(ending, reason=f"at the end: {expert.doing}")
            return ending

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._last_beat > _BEAT_SECONDS:
            self._last_beat = now
            self._pipe.send(Beat())


def _expert(wanted: Play, scene: Scene) -> Expert | GradedExpert | None:
    """The scripted expert that acts in an episode, if one does."""
    from harness.libero.expert import Expert
    from harness.libero.expert.graded import GradedExpert

    handicap = handicap_of(wanted.brain)
    if handicap is not None:
        return GradedExpert(scene.world, handicap, look_seed(wanted.key, 0))
    return Expert(scene.world) if wanted.brain == "expert" else None
