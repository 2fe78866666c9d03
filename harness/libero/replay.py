"""Episodes again, from their records: the scene is reset to the episode's key and its actions are executed once more.

What happened is a function of the key and the actions, so a replay is the episode, at any image size and from any
camera. That it is, is checked: the scene's hash, the outcome, and, in the protocol's own view, the images of the first
and the last look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadInput, HarnessError
from harness.libero.episode import play
from harness.libero.perception import images_sha256
from harness.libero.pool import actions_name, load_actions
from harness.libero.records import ArmRecord, EpisodeRecord, Protocol
from harness.libero.tasks import task
from harness.plan import EpisodeKey
from harness.store import read_lines, read_record

if TYPE_CHECKING:
    from harness.libero.scene import Scene

CAMERAS = ("agentview", "robot0_eye_in_hand", "frontview", "birdview", "sideview", "galleryview")
"""Cameras of every LIBERO scene."""


@dataclass(frozen=True)
class Recorded:
    """An episode on disk.

    Attributes:
        actions: float64 (steps, 7), as executed.
    """

    record: EpisodeRecord
    protocol: Protocol
    actions: NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """How to look at a replay; cameras stand side by side."""

    cameras: tuple[str, ...]
    size: int


class NotTheEpisode(HarnessError):
    """A replay came out otherwise than the record says: another MuJoCo, other assets, or a damaged record."""


def recorded_episode(actions_file: Path) -> Recorded:
    """An episode by the file of its actions, `<result>/evaluate/<arm>/actions/<task suite>-<task>-<state>-<seed>.npz`.

    Raises:
        BadInput: no such file, or none that an evaluation wrote.
        DamagedRecord: the records beside it cannot be read.
    """
    arm = actions_file.parent.parent
    if not actions_file.is_file():
        raise BadInput("EPISODE", None, str(actions_file), "a file in an arm's actions folder", _known(actions_file))
    for record in recorded_episodes(arm):
        if actions_name(record.key) == actions_file.name:
            protocol = read_record(arm / "protocol.json", ArmRecord).protocol
            if protocol.digest() != record.protocol:
                raise BadInput(actions_file, None, record.protocol, f"protocol {protocol.digest()}, its arm's")
            return Recorded(record, protocol, load_actions(actions_file))
    raise BadInput("EPISODE", None, str(actions_file), f"an episode of {arm / 'episodes.jsonl'}")


def recorded_episodes(arm: Path) -> list[EpisodeRecord]:
    """An arm's episodes, each as it ended last."""
    return list({record.key: record for record in read_lines(arm / "episodes.jsonl", EpisodeRecord)}.values())


def _known(actions_file: Path) -> list[str]:
    folder = actions_file.parent
    return [str(path) for path in sorted(folder.glob("*.npz"))] if folder.is_dir() else []


class Replayer:
    """Replays episodes, one scene at a time: those of one task, one after the other, compile it once.

    Args:
        view: what to render; None for the protocol's own images.
    """

    def __init__(self, view: View | None) -> None:
        self._view = view
        self._scene: Scene | None = None

    def frames(self, episode: Recorded, moments: Collection[int] | None = None) -> Iterator[NDArray[np.uint8]]:
        """Yields frames uint8 (H, W, 3): at rest (moment 0), then after each action (moments 1 to steps).

        Args:
            episode: what to play.
            moments: which of them to render; rendering is what a replay mostly costs. None for all.

        Raises:
            NotTheEpisode: another scene or another outcome than on record.
        """
        protocol = _viewed(episode.protocol, self._view)
        scene = self._scene_of(episode.record.key, protocol)
        start = scene.reset(episode.record.key)
        if start.scene_sha256 != episode.record.scene_sha256:
            raise NotTheEpisode(f"{_named(episode)}: another scene than on record, by its hash")
        if moments is None or 0 in moments:
            yield _side_by_side(start.observation.images, protocol.cameras)
        for action in _settling(episode.protocol):
            scene.step(action, look=False)
        succeeded = False
        for moment, action in enumerate(episode.actions, 1):
            wanted = moments is None or moment in moments
            observation = scene.step(action, look=wanted)
            succeeded = scene.success()
            if wanted:
                yield _side_by_side(observation.images, protocol.cameras)
        if succeeded != (episode.record.outcome == "success"):
            raise NotTheEpisode(
                f"{_named(episode)}: {'success' if succeeded else 'no success'} at the end of the replay"
            )

    def check(self, episode: Recorded) -> None:
        """Plays the episode as it was played, and compares the hashes of what the policy was shown.

        Raises:
            NotTheEpisode: they differ, or something that `frames` compares.
        """
        record, protocol = episode.record, episode.protocol
        scene = self._scene_of(record.key, protocol)
        start = scene.reset(record.key)
        shown: list[str | None] = []
        as_executed = protocol.model_copy(update={"gripper": "continuous"})
        again = play(scene, start.observation, record.key, as_executed, "")
        look, place = next(again), 0
        try:
            while True:
                shown.append(images_sha256(look.images))
                due = episode.actions[place : place + protocol.replan(record.key.task_suite)]
                look, place = again.send(due), place + len(due)
        except StopIteration as stop:
            outcome = stop.value.outcome
        found = (start.scene_sha256, outcome, shown[0], shown[-1])
        wanted = (record.scene_sha256, record.outcome, record.first_images_sha256, record.last_images_sha256)
        names = ("scene", "outcome", "images of the first look", "images of the last look")
        unlike = [name for name, a, b in zip(names, found, wanted, strict=True) if b is not None and a != b]
        if unlike:
            raise NotTheEpisode(f"{_named(episode)}: the replay differs in {', '.join(unlike)}")

    def close(self) -> None:
        if self._scene is not None:
            scene, self._scene = self._scene, None
            scene.close()

    def _scene_of(self, key: EpisodeKey, protocol: Protocol) -> Scene:
        from harness.libero.scene import Scene

        scene = self._scene
        same = scene is not None and (scene.task.task_suite, scene.task.number) == (key.task_suite, key.task)
        if scene is None or not same or scene.protocol != protocol:
            self.close()
            self._scene = scene = Scene(task(key.task_suite, key.task), protocol)
        return scene


def _viewed(protocol: Protocol, view: View | None) -> Protocol:
    if view is None:
        return protocol
    return protocol.model_copy(
        update={"cameras": view.cameras, "camera_height": view.size, "camera_width": view.size, "rotate_180": True}
    )


def _settling(protocol: Protocol) -> NDArray[np.float64]:
    return np.zeros((protocol.zero_steps, 7))


def _side_by_side(images: dict[str, NDArray[np.uint8]], cameras: tuple[str, ...]) -> NDArray[np.uint8]:
    return np.concatenate([images[camera] for camera in cameras], axis=1)


def _named(episode: Recorded) -> str:
    key = episode.record.key
    return f"{key.task_suite} {key.task}, initial state {key.initial_state}, seed {key.seed}"
