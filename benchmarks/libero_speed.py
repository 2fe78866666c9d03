"""Episodes per hour against LIBERO's own loop: same actions, same looks, same threads, taking turns in one run.

    python benchmarks/libero_speed.py                    # four task suites, then one and two workers
    python benchmarks/libero_speed.py --task-suites libero_object --rounds 1

The standard loop is the package's unmodified `OffScreenRenderEnv`: hard reset for every episode, both cameras at every
step. Ends with 1 when the geometric mean over the task suites is below 7, or two workers give less than 1.7 times
one worker's rate. Both loops must end in the same simulator state, to the bit.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np

from harness.libero.protocol import preset
from harness.libero.scene import NEUTRAL, Scene, _standard_environment, episode_seed
from harness.libero.tasks import evaluation_states, task
from harness.libero.worker import one_thread_each
from harness.plan import EpisodeKey
from harness.suite import TASK_SUITES

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

    def episode(self, task_suite: str, state: int) -> np.ndarray:
        self.scene.reset(key_of(task_suite, state), look=True)
        for index, action in enumerate(actions(state), 1):
            self.scene.step(action, look=index % REPLAN_STEPS == 0)
            self.scene.success()
        return self.scene.simulator_state()


class Standard:
    def __init__(self, task_suite: str, watch: Stopwatch | None) -> None:
        self.task = task(task_suite, 0)
        self.environment = _standard_environment(self.task, PROTOCOL, hard_reset=True)
        self.states = evaluation_states(self.task)
        self.watch = watch

    def episode(self, task_suite: str, state: int) -> np.ndarray:
        environment, watch = self.environment, self.watch
        environment.seed(episode_seed(key_of(task_suite, state)))
        with watch.part("reset") if watch else _nothing():
            environment.reset()
        if watch is not None:  # a hard reset builds all anew, so the watch goes on anew
            watch.wrap(environment.env.sim, "forward", "physics")
            watch.wrap(environment.env.sim, "step", "physics")
            watch.wrap(environment.env.robots[0], "control", "controller")
            for camera in PROTOCOL.cameras:
                watch.wrap(environment.env._observables[f"{camera}_image"], "_sensor", "render")
        environment.set_init_state(self.states[state])
        for _ in range(PROTOCOL.settle_steps):
            environment.step(NEUTRAL)
        for action in actions(state):
            environment.step(action)
        return np.asarray(environment.get_sim_state())


@contextmanager
def _nothing() -> Any:
    yield


def against_the_standard_loop(task_suite: str, rounds: int, watched: bool) -> tuple[list[float], list[float], Any]:
    """Seconds per episode of both loops, in turns."""
    watches = (Stopwatch(), Stopwatch()) if watched else (None, None)
    ours, standard = Ours(task_suite, watches[0]), Standard(task_suite, watches[1])
    ours.episode(task_suite, 49)  # compiled functions and caches are warm on both sides
    standard.episode(task_suite, 49)
    for watch in watches:
        if watch is not None:
            watch.seconds = dict.fromkeys(PARTS, 0.0)
    taken: tuple[list[float], list[float]] = ([], [])
    for state in range(rounds):
        ends = []
        for loop, seconds in zip((ours, standard), taken, strict=True):
            start = time.perf_counter()
            ends.append(loop.episode(task_suite, state))
            seconds.append(time.perf_counter() - start)
        if not np.array_equal(*ends):
            sys.exit(f"{task_suite}, initial state {state}: the two loops ended in different states")
    for watch, seconds in zip(watches, taken, strict=True):
        if watch is not None:
            watch.seconds["rest"] = sum(seconds) - sum(watch.seconds.values())
    return *taken, watches


def work(task_suite: str, episodes: int, ready: Barrier, answers: Any) -> None:
    loop = Ours(task_suite, None)
    loop.episode(task_suite, 49)
    for _ in range(2):
        ready.wait()
        start = time.perf_counter()
        for state in range(episodes):
            loop.episode(task_suite, state)
        answers.put(time.perf_counter() - start)
        ready.wait()


def scaling(task_suite: str, episodes: int) -> float:
    """Two workers' rate over one's, on two cores; one after the other, each with its own processes."""
    rates = {count: _rate(task_suite, count, episodes) for count in (1, 2)}
    return rates[2] / rates[1]


def _rate(task_suite: str, workers: int, episodes: int) -> float:
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(workers), context.Queue()
    with one_thread_each():
        processes = [context.Process(target=work, args=(task_suite, episodes, ready, answers)) for _ in range(workers)]
        for process in processes:
            process.start()
    seconds = [answers.get() for _ in range(2 * workers)]
    for process in processes:
        process.join()
    return workers * episodes / (sum(seconds) / len(seconds))


def table(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task-suites", nargs="+", choices=TASK_SUITES, default=list(TASK_SUITES))
    parser.add_argument("--rounds", type=int, default=3, help="episodes of each loop per task suite")
    parser.add_argument("--where", action="store_true", help="where the time goes, instead of the ratios")
    parser.add_argument("--no-scaling", action="store_true", help="leave out one worker against two")
    chosen = parser.parse_args()
    rows = [["task suite", "standard s/episode", "ours s/episode", "ratio"]]
    parts = [["seconds per episode", "loop", *PARTS]]
    ratios = []
    for task_suite in chosen.task_suites:
        ours, standard, watches = against_the_standard_loop(task_suite, chosen.rounds, chosen.where)
        ratio = math.exp(np.mean(np.log(standard)) - np.mean(np.log(ours)))
        ratios.append(ratio)
        rows.append([task_suite, f"{np.mean(standard):.2f}", f"{np.mean(ours):.2f}", f"{ratio:.1f}×"])
        print(" ".join(rows[-1]), flush=True)
        for name, watch in zip(("ours", "standard"), watches, strict=True):
            if watch is not None:
                parts.append([task_suite, name, *(f"{watch.seconds[part] / chosen.rounds:.2f}" for part in PARTS)])
    mean = math.exp(np.mean(np.log(ratios)))
    print(table(parts if chosen.where else rows))
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
    with one_thread_each():
        sys.exit(main())
