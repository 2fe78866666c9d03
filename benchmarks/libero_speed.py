"""Episodes per hour against LIBERO's own loop: same actions, same looks, same threads, taking turns in one run.

    python benchmarks/libero_speed.py                    # four task suites, then one and two workers
    python benchmarks/libero_speed.py --task-suites libero_object --rounds 1

The standard loop is the package's unmodified `OffScreenRenderEnv`: hard reset for every episode, both cameras at every
step. Ends with 1 when the geometric mean over the task suites is below 7, or two workers give less than 1.7 times
one worker's rate. Both loops must end in the same simulator state and see the same pixels at every look, to the bit.

Each loop has a process of its own, and while one plays the other waits. In one process the standard loop's resets would
free the other's textures and meshes (robosuite frees by number, in whichever OpenGL context is current), and a scene
without its meshes renders several times faster.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from harness.libero.perception import images_sha256
from harness.libero.protocol import preset
from harness.libero.scene import NEUTRAL, Scene, _standard_environment, episode_seed
from harness.libero.tasks import evaluation_states, task
from harness.libero.worker import one_thread_each
from harness.plan import EpisodeKey
from harness.report.table import Table
from harness.task_suites import TASK_SUITES

STEPS, REPLAN_STEPS = 100, 10
LEAST_RATIO, LEAST_SCALING = 7.0, 1.7
PROTOCOL = preset("openpi").model_copy(update={"replan_steps": REPLAN_STEPS})
PARTS = ("physics", "controller", "render", "reset", "rest")


def actions(seed: int) -> np.ndarray:
    """Slow wandering with both grippers' states: float64 (STEPS, 7)."""
    drawn = np.random.default_rng(seed).uniform(-0.5, 0.5, size=(STEPS, 7))
    drawn[:, 6] = np.where(np.arange(STEPS) % 40 < 20, -1, 1)
    return drawn


def key_of(task_suite: str, state: int) -> EpisodeKey:
    return EpisodeKey.model_validate({"task_suite": task_suite, "task": 0, "initial_state": state, "seed": 7})


class Stopwatch:
    """Adds up the seconds spent in wrapped calls; what is called inside another part counts for itself alone."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._stack: list[float] = []

    @contextmanager
    def part(self, name: str) -> Any:
        self._stack.append(0.0)
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] += spent - self._stack.pop()
            if self._stack:
                self._stack[-1] += spent

    def wrap(self, owner: Any, name: str, part: str) -> None:
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(part):
                return inner(*args, **kwargs)

        if hasattr(inner, "__modality__"):
            timed.__modality__ = inner.__modality__  # type: ignore[attr-defined]
        setattr(owner, name, timed)


class Counted:
    """MuJoCo's functions, on the watch."""

    def __init__(self, mujoco: Any, watch: Stopwatch) -> None:
        self._mujoco = mujoco
        for name in ("mj_forward", "mj_fwdConstraint", "mj_step2", "mj_step", "mj_checkPos", "mj_checkVel"):
            setattr(self, name, getattr(mujoco, name))
            watch.wrap(self, name, "physics")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mujoco, name)


@dataclass(frozen=True)
class Played:
    """How an episode ended, and what was seen at its looks."""

    state: np.ndarray
    looks: list[dict[str, np.ndarray]]

    def sha256(self) -> str:
        pixels = [str(images_sha256(look)).encode() for look in self.looks]
        return hashlib.sha256(b"".join([self.state.tobytes(), *pixels])).hexdigest()


class Ours:
    def __init__(self, task_suite: str, watch: Stopwatch | None) -> None:
        self.scene = Scene(task(task_suite, 0), PROTOCOL)
        if watch is not None:
            arm, domain = self.scene._arm, self.scene._domain
            arm._mujoco = Counted(arm._mujoco, watch)
            watch.wrap(arm, "step", "controller")
            watch.wrap(self.scene, "_fresh", "reset")
            for camera in PROTOCOL.cameras:
                watch.wrap(domain._observables[f"{camera}_image"], "_sensor", "render")

    def episode(self, task_suite: str, state: int) -> Played:
        looks = [self.scene.reset(key_of(task_suite, state), look=True).observation.images]
        for index, action in enumerate(actions(state), 1):
            observation = self.scene.step(action, look=index % REPLAN_STEPS == 0)
            self.scene.success()
            if observation.images:
                looks.append(observation.images)
        return Played(self.scene.simulator_state(), looks)

    def close(self) -> None:
        self.scene.close()


class Standard:
    def __init__(self, task_suite: str, watch: Stopwatch | None) -> None:
        self.task = task(task_suite, 0)
        self.environment = _standard_environment(self.task, PROTOCOL, hard_reset=True)
        self.states = evaluation_states(self.task)
        self.watch = watch

    def episode(self, task_suite: str, state: int) -> Played:
        environment, watch = self.environment, self.watch
        environment.seed(episode_seed(key_of(task_suite, state)))
        with watch.part("reset") if watch else nullcontext():
            environment.reset()
        if watch is not None:  # a hard reset builds all anew, so the watch goes on anew
            watch.wrap(environment.env.sim, "forward", "physics")
            watch.wrap(environment.env.sim, "step", "physics")
            watch.wrap(environment.env.robots[0], "control", "controller")
            for camera in PROTOCOL.cameras:
                watch.wrap(environment.env._observables[f"{camera}_image"], "_sensor", "render")
        environment.set_init_state(self.states[state])
        for _ in range(PROTOCOL.settle_steps):
            raw, *_ = environment.step(NEUTRAL)
        looks = [_images(raw)]
        for index, action in enumerate(actions(state), 1):
            raw, *_ = environment.step(action)
            if index % REPLAN_STEPS == 0:
                looks.append(_images(raw))
        return Played(np.asarray(environment.get_sim_state()), looks)

    def close(self) -> None:
        renderer = self.environment.env.sim._render_context_offscreen
        renderer.con.free()
        renderer.gl_ctx.free()


def _images(raw: dict[str, Any]) -> dict[str, np.ndarray]:
    return {camera: raw[f"{camera}_image"][::-1, ::-1] for camera in PROTOCOL.cameras}


@dataclass(frozen=True)
class Turn:
    """What a process did at one order."""

    seconds: float
    sha256s: list[str]
    parts: dict[str, float] | None
    """Seconds in each part since the first order; None when there is no watch."""


def work(loop_of: type[Ours] | type[Standard], task_suite: str, watched: bool, orders: Connection) -> None:
    """A process with one loop: plays the initial states it is sent, and answers with a `Turn` for each list of them."""
    watch = Stopwatch() if watched else None
    loop = loop_of(task_suite, watch)
    loop.episode(task_suite, 49)  # compiled functions and caches are warm
    if watch is not None:
        watch.seconds = dict.fromkeys(PARTS, 0.0)
    orders.send(None)
    while states := orders.recv():
        start = time.perf_counter()
        played = [loop.episode(task_suite, state) for state in states]
        seconds = time.perf_counter() - start
        orders.send(Turn(seconds, [episode.sha256() for episode in played], watch.seconds if watch else None))
    loop.close()


@contextmanager
def processes(loops: list[type[Ours] | type[Standard]], task_suite: str, watched: bool) -> Iterator[list[Connection]]:
    """One for each loop, warm and waiting; the connections to them."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in loops]
    running = [
        context.Process(target=work, args=(loop, task_suite, watched, there), daemon=True)
        for loop, (_, there) in zip(loops, pipes, strict=True)
    ]
    ends = [here for here, _ in pipes]
    with one_thread_each():
        for process in running:
            process.start()
    for end in ends:
        end.recv()
    yield ends
    for end in ends:
        end.send([])
    for process in running:
        process.join()


def against_the_standard_loop(task_suite: str, rounds: int, watched: bool) -> tuple[list[Turn], list[Turn]]:
    """An episode of each loop per round, in turns; whoever ended the last round begins the next."""
    turns: tuple[list[Turn], list[Turn]] = ([], [])
    with processes([Ours, Standard], task_suite, watched) as ends:
        for state in range(rounds):
            for place in (0, 1) if state % 2 == 0 else (1, 0):
                ends[place].send([state])
                turns[place].append(ends[place].recv())
            if turns[0][-1].sha256s != turns[1][-1].sha256s:
                sys.exit(
                    f"{task_suite}, initial state {state}: the two loops differ in the last state or in some pixel"
                )
    return turns


def scaling(task_suite: str, episodes: int, rounds: int = 4) -> float:
    """Two workers' rate over one's, on two cores: one alone and both together take turns, in balanced order."""
    gains = []
    with processes([Ours, Ours], task_suite, watched=False) as ends:
        for number in range(rounds):
            seconds = {}
            for count in (1, 2) if number % 2 == 0 else (2, 1):
                for end in ends[:count]:
                    end.send(list(range(episodes)))
                seconds[count] = float(np.mean([end.recv().seconds for end in ends[:count]]))
            gains.append(2 * seconds[1] / seconds[2])
            print(f"one worker {seconds[1]:.2f} s, two {seconds[2]:.2f} s for {episodes} episodes each", flush=True)
    return math.exp(np.mean(np.log(gains)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task-suites", nargs="+", choices=TASK_SUITES, default=list(TASK_SUITES))
    parser.add_argument("--rounds", type=int, default=3, help="episodes of each loop per task suite")
    parser.add_argument("--where", action="store_true", help="where the time goes, instead of the ratios")
    parser.add_argument("--no-scaling", action="store_true", help="leave out one worker against two")
    chosen = parser.parse_args()
    rates = Table(["task suite", "standard s/episode", "ours s/episode", "ratio"], reading="")
    parts = Table(["seconds per episode", "loop", *PARTS], reading="")
    ratios = []
    for task_suite in chosen.task_suites:
        turns = against_the_standard_loop(task_suite, chosen.rounds, chosen.where)
        ours, standard = ([turn.seconds for turn in mine] for mine in turns)
        ratio = math.exp(np.mean(np.log(standard)) - np.mean(np.log(ours)))
        ratios.append(ratio)
        rates.add(task_suite, f"{np.mean(standard):.2f}", f"{np.mean(ours):.2f}", f"{ratio:.1f}×")
        print(" ".join(rates.rows[-1]), flush=True)
        for name, mine in zip(("ours", "standard"), turns, strict=True):
            if spent := mine[-1].parts:
                spent["rest"] = sum(turn.seconds for turn in mine) - sum(spent.values())
                parts.add(task_suite, name, *(f"{spent[part] / chosen.rounds:.2f}" for part in PARTS))
    mean = math.exp(np.mean(np.log(ratios)))
    print((parts if chosen.where else rates).text())
    print(f"geometric mean: {mean:.1f} (at least {LEAST_RATIO})")
    if chosen.where:
        return 0
    good = mean >= LEAST_RATIO
    if not chosen.no_scaling:
        gain = scaling(chosen.task_suites[0], chosen.rounds)
        print(f"two workers against one: {gain:.2f}× (at least {LEAST_SCALING})")
        good = good and gain >= LEAST_SCALING
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
