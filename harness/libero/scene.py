"""One LIBERO task in MuJoCo, exact and fast. The only module that imports LIBERO or robosuite.

Exact: what happens depends on (task suite, task, initial state, seed) alone, and is bit for bit what the standard
loop gives (`OffScreenRenderEnv` made afresh for the episode, every camera rendered at every step). Fast: the model is
compiled once per task and reset in place, cameras are rendered only at looks, and a control step computes nothing twice
(`harness.libero.control`).
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import redirect_stdout
from ctypes.util import find_library
from dataclasses import dataclass
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from harness.errors import MachineFault
from harness.libero.control import ArmLoop
from harness.libero.culling import out_of_view, without
from harness.libero.geometry import axis_angle
from harness.libero.records import Protocol
from harness.libero.tasks import Task, evaluation_states
from harness.libero.world import World
from harness.plan import EpisodeKey

NEUTRAL: NDArray[np.float64] = np.array([0.0, 0, 0, 0, 0, 0, -1])
"""No motion, gripper open: sent while the scene settles, and by the arm `still`."""

MUJOCO_RANGE = ((3, 2, 3), (3, 3, 2))
"""Oldest and newest MuJoCo with LIBERO's physics and colours: 3.3.3 darkens floors, 3.4 changes box contacts."""

_MAX_PLACEMENT_TRIES = 100
_LOW_DIMENSIONAL = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "robot0_joint_pos")
"""The sensors an `Observation` is made of, beside the cameras."""


@dataclass(frozen=True)
class Observation:
    """What the robot perceives after a step.

    Attributes:
        images: camera name → uint8 (H, W, 3), rotated as the protocol says; empty unless it was a look.
        position: float64 (3,) gripper site, metres.
        quaternion: float64 (4,) xyzw.
        gripper: float64 (2,) finger joints, metres.
        joints: float64 (7,) arm joints, radians.
    """

    images: dict[str, NDArray[np.uint8]]
    position: NDArray[np.float64]
    quaternion: NDArray[np.float64]
    gripper: NDArray[np.float64]
    joints: NDArray[np.float64]

    @property
    def state(self) -> NDArray[np.float64]:
        """float64 (8,), see `Protocol.state_layout`."""
        return np.concatenate([self.position, axis_angle(self.quaternion), self.gripper])


@dataclass(frozen=True)
class Start:
    """A scene at rest, ready for step 0."""

    scene_sha256: str
    observation: Observation


class Scene:
    """One compiled task, reset in place. Takes about 2 GB; not thread-safe.

    Args:
        task: what to simulate.
        protocol: cameras, image size, rotation and settling.
    """

    def __init__(self, task: Task, protocol: Protocol) -> None:
        self.task, self.protocol = task, protocol
        self._look = True
        self._env = _standard_environment(task, protocol, hard_reset=False)
        self._domain = self._env.env
        # Each hard reset appends the samplers of open drawers and burning stoves once more, and each draws from the
        # generator before the fixtures do. A fresh standard environment has them twice in its first episode.
        self._domain.object_property_initializers *= 2
        self._states: NDArray[np.float64] | None = None
        self._rewind_like_new()
        for camera in protocol.cameras:
            self._gate(self._domain._observables[f"{camera}_image"], camera)
        self._arm = ArmLoop(self._domain)
        self._sampled: dict[str, Any] = {}
        self._succeeded: bool | None = None
        self.world = World(self._domain)

    def reset(self, key: EpisodeKey, *, look: bool = True) -> Start:
        """Puts the scene at an evaluation's initial state, its objects moved as the protocol says, and lets it settle.

        Args:
            key: its task suite and task must be this scene's.
            look: whether the first observation carries images.
        """
        if (key.task_suite, key.task) != (self.task.task_suite, self.task.number):
            raise ValueError(f"this scene is {self.task.task_suite} {self.task.number}, not {key}")
        if self._states is None:
            self._states = evaluation_states(self.task)
        seed, state = episode_seed(key), self._states[key.initial_state]
        self._fresh(seed)
        if self.protocol.object_jitter_m > 0:
            self._domain.sim.set_state_from_flattened(state)
            self._domain.sim.forward()
            self.world.jitter(np.random.default_rng([seed, 2]), self.protocol.object_jitter_m)
            state = self.simulator_state()
        return self._settle(state, look)

    def draw(self, seed: int, object_jitter_m: float, arm_noise_rad: float, *, look: bool = True) -> Start:
        """Puts the scene at an own draw of the task's placement initializer, and lets it settle.

        Args:
            seed: of the draw.
            arm_noise_rad: standard deviation of the arm's joints about robosuite's initial pose.
            object_jitter_m: each movable object is moved by up to this much in x and in y, metres, where it stays
                clear of the other objects; objects that stand on or in another one stay.
        """
        self._fresh(seed)
        generator = np.random.default_rng(seed)
        joints = self._domain.robots[0]._ref_joint_pos_indexes
        self._domain.sim.data.qpos[joints] += generator.normal(0.0, arm_noise_rad, size=len(joints))
        self.world.jitter(generator, object_jitter_m)
        return self._settle(np.asarray(self._env.get_sim_state(), dtype=np.float64), look)

    def step(self, action: NDArray[np.float64], *, look: bool) -> Observation:
        """One control step (50 ms). `look` decides whether the observation carries images."""
        self._look = look
        self._arm.step(action, self._sample)
        self._domain._post_process()
        self._succeeded = None
        return self._observation(self._sampled)

    def success(self) -> bool:
        """Whether the task's goal holds now."""
        if self._succeeded is None:
            self._succeeded = bool(self._domain._check_success())
        return self._succeeded

    def simulator_state(self) -> NDArray[np.float64]:
        """float64 (1 + nq + nv,): MuJoCo's flattened state."""
        return np.asarray(self._env.get_sim_state(), dtype=np.float64)

    def gl_strings(self) -> tuple[str, str]:
        """OpenGL vendor and renderer: pixels are comparable only where both agree."""
        from OpenGL import GL  # valid only while a context is current

        self._make_current()
        vendor, renderer = GL.glGetString(GL.GL_VENDOR), GL.glGetString(GL.GL_RENDERER)
        return (vendor or b"unknown").decode(), (renderer or b"unknown").decode()

    def close(self) -> None:
        """Frees what it rendered with. robosuite leaves that to the collector, which frees textures and buffers by
        number in whichever OpenGL context is current then: those of another scene."""
        renderer = self._domain.sim._render_context_offscreen
        self._make_current()
        renderer.con.free()
        renderer.gl_ctx.free()
        self._env.close()

    def _fresh(self, seed: int) -> None:
        """Resets everything a hard reset would: the draws of fixtures, the controllers, the gripper's memory."""
        np.random.seed(seed)
        self._look = False
        from robosuite.utils.errors import RandomizationError

        for attempt in range(_MAX_PLACEMENT_TRIES):
            try:
                self._domain.reset()
                break
            except RandomizationError:
                if attempt + 1 == _MAX_PLACEMENT_TRIES:
                    raise
        for robot in self._domain.robots:
            # PandaGripper integrates its commands here, and a soft reset forgets to clear it.
            robot.gripper.current_action[:] = 0

    def _rewind_like_new(self) -> None:
        """Makes `sim.reset()` leave what a freshly compiled simulation has at that point: fixtures where the XML puts
        them, and the constraint solver's warm start after two forward passes (robosuite's own, and its renderer's).
        Without it states differ in the last bits wherever the solver stops early."""
        sim = self._domain.sim
        bodies = {body.get("name"): body for body in ElementTree.fromstring(self._domain.model.get_xml()).iter("body")}
        placed = []
        for fixture in self._domain.fixtures_dict.values():
            element = bodies[fixture.root_body]
            position = np.array(element.get("pos", "0 0 0").split(), dtype=np.float64)
            quaternion = np.array(element.get("quat", "1 0 0 0").split(), dtype=np.float64)
            placed.append((sim.model.body_name2id(fixture.root_body), position, quaternion))
        rewind = sim.reset

        def reset() -> None:
            for body, position, quaternion in placed:
                sim.model.body_pos[body], sim.model.body_quat[body] = position, quaternion
            rewind()
            sim.forward()
            sim.forward()

        sim.reset = reset

    def _settle(self, state: NDArray[np.float64], look: bool) -> Start:
        steps = self.protocol.settle_steps
        self._look, self._succeeded = look and steps == 0, None
        observation = self._observation(self._env.set_init_state(state))
        sha256 = self._scene_sha256()
        for index in range(steps):
            observation = self.step(NEUTRAL, look=look and index == steps - 1)
        return Start(sha256, observation)

    def _sample(self) -> None:
        """Reads the sensors of an `Observation`, and no others."""
        observables = self._domain._observables
        cameras = [f"{camera}_image" for camera in self.protocol.cameras] if self._look else []
        self._sampled = {name: np.array(observables[name]._sensor({})) for name in (*_LOW_DIMENSIONAL, *cameras)}

    def _scene_sha256(self) -> str:
        """Hash of all body poses in the model (fixtures are placed there), qpos and qvel."""
        sim = self._domain.sim
        parts = (sim.model.body_pos, sim.model.body_quat, sim.data.qpos, sim.data.qvel)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()

    def _observation(self, raw: dict[str, Any]) -> Observation:
        images: dict[str, NDArray[np.uint8]] = {}
        if self._look:
            for camera in self.protocol.cameras:
                image = raw[f"{camera}_image"]
                images[camera] = np.ascontiguousarray(image[::-1, ::-1] if self.protocol.rotate_180 else image)
        return Observation(
            images=images,
            position=np.array(raw["robot0_eef_pos"], dtype=np.float64),
            quaternion=np.array(raw["robot0_eef_quat"], dtype=np.float64),
            gripper=np.array(raw["robot0_gripper_qpos"], dtype=np.float64),
            joints=np.array(raw["robot0_joint_pos"], dtype=np.float64),
        )

    def _make_current(self) -> None:
        """robosuite renders into whichever context was made last in the process; this makes it the scene's own."""
        self._domain.sim._render_context_offscreen.gl_ctx.make_current()

    def _gate(self, observable: Any, camera: str) -> None:
        """Renders only at looks, only what the camera can see, and at the very substep the standard loop samples:
        hence the sensor, not the observable (enabling it restarts its sampling phase), and not a render after the
        step (one substep too late)."""
        render: Callable[[Any], Any] = observable._sensor
        blank = np.zeros((self.protocol.camera_height, self.protocol.camera_width, 3), np.uint8)
        square = self.protocol.camera_height == self.protocol.camera_width
        sim = self._domain.sim
        model, data, number = sim.model._model, sim.data._data, sim.model.camera_name2id(camera)

        def sensor(cache: Any) -> Any:
            if not self._look:
                return blank
            self._make_current()
            if not square:
                return render(cache)
            with without(model, out_of_view(model, data, number)):
                return render(cache)

        sensor.__modality__ = observable.modality  # type: ignore[attr-defined]
        observable._sensor = sensor


def episode_seed(key: EpisodeKey) -> int:
    """Seeds the draws of an episode's fixtures: 32 bits of a hash of the key, so that neighbours share nothing."""
    text = f"{key.task_suite}/{key.task}/{key.initial_state}/{key.seed}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _standard_environment(task: Task, protocol: Protocol, *, hard_reset: bool) -> Any:
    """LIBERO's own `OffScreenRenderEnv`. Raises MachineFault when MuJoCo or OpenGL is not fit."""
    check_mujoco_version()
    choose_gl()
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)
    try:
        with redirect_stdout(StringIO()):
            from libero.libero.envs import OffScreenRenderEnv

            return OffScreenRenderEnv(
                bddl_file_name=str(task.bddl),
                camera_names=list(protocol.cameras),
                camera_heights=protocol.camera_height,
                camera_widths=protocol.camera_width,
                hard_reset=hard_reset,
            )
    except Exception as error:
        if _is_gl_error(error):
            raise MachineFault(f"OpenGL does not start ({error}). {gl_mend()}") from error
        raise


def choose_gl() -> str:
    """Sets MUJOCO_GL to egl, else osmesa, unless it is set; must come before MuJoCo's import. Returns it."""
    if not os.environ.get("MUJOCO_GL"):
        for backend, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
            if find_library(library):
                os.environ["MUJOCO_GL"] = backend
                break
        else:
            raise MachineFault(f"No OpenGL library for off-screen rendering was found. {gl_mend()}")
    os.environ.setdefault("PYOPENGL_PLATFORM", os.environ["MUJOCO_GL"])
    return os.environ["MUJOCO_GL"]


def gl_mend() -> str:
    """How to get a working OpenGL, in words."""
    return (
        "With EGL (GPU or software): `apt-get install libegl1 libgl1 libglx-mesa0 libegl-mesa0`; "
        "without: `apt-get install libosmesa6` and set MUJOCO_GL=osmesa"
    )


def check_mujoco_version() -> str:
    """MuJoCo's version. Raises MachineFault outside the range in which LIBERO's physics and colours hold."""
    from importlib.metadata import PackageNotFoundError, version

    mend = "pip install 'mujoco==3.3.2'"
    try:
        found = version("mujoco")
    except PackageNotFoundError:
        raise MachineFault(f"MuJoCo is not installed: {mend}") from None
    numbers = tuple(int(part) for part in found.split(".")[:3])
    if not MUJOCO_RANGE[0] <= numbers <= MUJOCO_RANGE[1]:
        raise MachineFault(
            f"MuJoCo {found}: LIBERO's published numbers hold for 3.2.3 to 3.3.2 only "
            f"(contacts and floors differ in others): {mend}"
        )
    return found


def _is_gl_error(error: Exception) -> bool:
    text = f"{type(error).__module__}.{type(error).__name__}: {error}".lower()
    return any(word in text for word in ("egl", "opengl", "osmesa", "glfw", "framebuffer", "glcontext"))
