"""Memory of one simulator process over many episodes of one scene: it must stay flat.

    python benchmarks/libero_memory.py                   # 500 episodes, about 17 minutes
    python benchmarks/libero_memory.py --episodes 60

Each episode resets the scene in place, settles it and takes 16 steps with two looks of both cameras at 256 × 256. Ends
with 1 when the resident set of the last fifth of the episodes is more than 1 % above that of the second fifth; the
first is left out, as caches fill there.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import numpy as np

STEPS, LOOK_EVERY = 16, 8
MOST_GROWTH = 0.01


def resident_bytes(task_suite: str, number: int, episodes: int) -> list[int]:
    """The process's resident set after each episode."""
    import psutil

    from harness.libero.protocol import preset
    from harness.libero.scene import Scene
    from harness.libero.tasks import EVALUATION_STATES, task
    from harness.plan import EpisodeKey

    scene, process, found = Scene(task(task_suite, number), preset("openpi")), psutil.Process(), []
    generator = np.random.default_rng(7)
    for episode in range(episodes):
        key = {"task_suite": task_suite, "task": number, "initial_state": episode % EVALUATION_STATES, "seed": episode}
        scene.reset(EpisodeKey.model_validate(key))
        for step in range(1, STEPS + 1):
            scene.step(generator.uniform(-0.5, 0.5, size=7), look=step % LOOK_EVERY == 0)
        found.append(process.memory_info().rss)
        if sys.stderr.isatty():
            print(f"\r{episode + 1}/{episodes}: {found[-1] / 2**20:.0f} MiB", end="", file=sys.stderr)
    scene.close()
    return found


def growth(resident: list[int]) -> float:
    """Share by which the median of the last fifth is above that of the second fifth."""
    fifth = len(resident) // 5
    early, late = statistics.median(resident[fifth : 2 * fifth]), statistics.median(resident[-fifth:])
    return late / early - 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=500, help="at least 10")
    parser.add_argument("--task-suite", default="libero_spatial")
    parser.add_argument("--task", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.episodes < 10:
        parser.error("--episodes: at least 10")
    resident = resident_bytes(chosen.task_suite, chosen.task, chosen.episodes)
    for part in np.array_split(np.array(resident), 5):
        print(f"{statistics.median(part) / 2**20:8.1f} MiB median of {len(part)} episodes")
    grown = growth(resident)
    print(f"{grown:+.2%} from the second fifth to the last, {MOST_GROWTH:.0%} at most")
    sys.exit(grown > MOST_GROWTH)


if __name__ == "__main__":
    main()
