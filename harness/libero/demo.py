"""One demonstration: recorded from the expert, packed into bytes and back."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadInput, DamagedRecord
from harness.libero.episode import Ending, play
from harness.plan import EpisodeKey

if TYPE_CHECKING:
    from harness.libero.demos import DemosSpec
    from harness.libero.scene import Observation, Scene


@dataclass
class Demo:
    """One demonstration; T steps, N frames.

    Attributes:
        actions: float64 (T, 7), the expert's own.
        executed: float64 (T, 7), with noise in noisy demonstrations.
        states: float64 (T, 1 + nq + nv), the simulator's before each action.
        positions, quaternions, grippers, joints: float64 (T, 3), (T, 4) xyzw, (T, 2), (T, 7), before each action.
        frame_index: int64 (N,), the steps that have frames.
        frames: camera name → uint8 (N, H, W, 3).
    """

    success: bool
    noisy: bool
    seed: int
    scene_sha256: str
    actions: NDArray[np.float64]
    executed: NDArray[np.float64]
    states: NDArray[np.float64]
    positions: NDArray[np.float64]
    quaternions: NDArray[np.float64]
    grippers: NDArray[np.float64]
    joints: NDArray[np.float64]
    frame_index: NDArray[np.int64]
    frames: dict[str, NDArray[np.uint8]]


def record_demo(scene: Scene, spec: DemosSpec, attempt: int) -> Demo:
    """One attempt, a function of (spec, task, attempt) alone. Odd attempts are noisy. Raises BadInput (uncovered)."""
    from harness.libero.expert import Expert, uncovered_reason

    seed = _attempt_seed(spec, scene.task.number, attempt)
    start = scene.draw(seed, spec.object_jitter_m, spec.arm_noise_rad)
    reason = uncovered_reason(scene.world)
    if reason is not None:
        raise BadInput("demonstrations", "tasks", scene.task.number, f"a task the expert covers; {reason}")
    noisy = attempt % 2 == 1 and spec.action_noise > 0
    generator = np.random.default_rng([seed, 1])
    expert = Expert(scene.world)
    tape = _Tape(scene, start.observation)
    key = EpisodeKey(task_suite=spec.task_suite, task=scene.task.number, initial_state=attempt, seed=spec.seed)
    episode = play(
        tape,
        start.observation,
        key,
        scene.protocol,
        scene.task.instruction,
        with_images=lambda step: step % spec.frame_stride == 0,
    )
    clean: list[NDArray[np.float64]] = []
    try:
        next(episode)
        while True:
            action = expert.act()
            clean.append(action)
            executed = action.copy()
            if noisy:
                executed[:3] = np.clip(action[:3] + generator.normal(0.0, spec.action_noise, 3), -1.0, 1.0)
            episode.send(executed[None])
    except StopIteration as stop:
        ending: Ending = stop.value
    return tape.demo(ending, np.array(clean), noisy, seed, start.scene_sha256)


class _Tape:
    """A scene that writes down what is before each action."""

    def __init__(self, scene: Scene, first: Observation) -> None:
        self._scene = scene
        self._now = first
        self._observations: list[Observation] = []
        self._states: list[NDArray[np.float64]] = []

    def step(self, action: NDArray[np.float64], *, look: bool) -> Observation:
        self._observations.append(self._now)
        self._states.append(self._scene.simulator_state())
        self._now = self._scene.step(action, look=look)
        return self._now

    def success(self) -> bool:
        return self._scene.success()

    def demo(self, ending: Ending, clean: NDArray[np.float64], noisy: bool, seed: int, sha256: str) -> Demo:
        seen = self._observations
        frames = [index for index, observation in enumerate(seen) if observation.images]
        return Demo(
            success=ending.outcome == "success",
            noisy=noisy,
            seed=seed,
            scene_sha256=sha256,
            actions=clean[: ending.steps],
            executed=ending.actions,
            states=np.array(self._states),
            positions=np.array([observation.position for observation in seen]),
            quaternions=np.array([observation.quaternion for observation in seen]),
            grippers=np.array([observation.gripper for observation in seen]),
            joints=np.array([observation.joints for observation in seen]),
            frame_index=np.array(frames, dtype=np.int64),
            frames={
                camera: np.array([seen[index].images[camera] for index in frames])
                for camera in self._scene.protocol.cameras
            },
        )


def _attempt_seed(spec: DemosSpec, number: int, attempt: int) -> int:
    text = f"demonstration/{spec.task_suite}/{number}/{attempt}/{spec.seed}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def packed(demo: Demo) -> bytes:
    """A demonstration as the bytes of an npz file; without frames when it failed."""
    arrays: dict[str, Any] = {name: value for name, value in vars(demo).items() if name != "frames"}
    arrays |= {f"frames/{camera}": frames for camera, frames in demo.frames.items()}
    if not demo.success:
        arrays |= {f"frames/{camera}": frames[:0] for camera, frames in demo.frames.items()}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def load(path: Path) -> Demo:
    """What `packed` packed. Raises DamagedRecord."""
    try:
        with np.load(path, allow_pickle=False) as file:
            values: dict[str, Any] = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise DamagedRecord(f"{path}: not a demonstration part ({error}); delete it and run again") from error
    frames = {name.removeprefix("frames/"): values.pop(name) for name in list(values) if name.startswith("frames/")}
    for name, kind in (("success", bool), ("noisy", bool), ("seed", int), ("scene_sha256", str)):
        values[name] = kind(values[name])
    return Demo(frames=frames, **values)
