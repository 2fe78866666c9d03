"""Demonstrations as part of a plan: which ones it needs, and making them while someone watches."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from harness.display import Display
from harness.libero.demos import RECORD_FILE, DemosRecord, DemosSpec, Progress, make_demonstrations
from harness.plan import Plan
from harness.store import Store
from harness.suite import Data
from harness.work import MakeDemonstrations

CONTROL_HZ = 20
"""Control steps per second of simulated time in LIBERO (`control_freq` of its environments)."""


def demonstrations_spec(data: Data, seed: int) -> DemosSpec:
    """What a suite's `[data]` asks of the scripted expert. The same question finds the same folder again."""
    return DemosSpec(
        task_suite=data.task_suite,
        tasks=data.tasks,
        episodes=data.episodes,
        action_noise=data.action_noise,
        frame_stride=data.frame_stride,
        object_jitter_m=data.object_jitter_m,
        seed=seed,
    )


def demonstrations_folder(plan: Plan, store: Store) -> Path:
    return store.demonstrations(demonstrations_spec(plan.data, plan.seed).digest())


def make_planned(plan: Plan, store: Store, display: Display) -> None:
    """Makes what a plan needs, as the work under way on `display`."""
    spec = demonstrations_spec(plan.data, plan.seed)
    record = _make(spec, demonstrations_folder(plan, store), plan.workers, display)
    display.finish(spoken_record(record))


def demonstrations_ready(plan: Plan, store: Store) -> bool:
    """Whether a whole set lies there: its record is written last."""
    return (demonstrations_folder(plan, store) / RECORD_FILE).exists()


def spoken_record(record: DemosRecord) -> str:
    kept = len(record.spec.tasks) * record.spec.episodes
    return f"{kept} demonstrations, {record.discarded} failed and discarded"


def write_as_lerobot(record: DemosRecord, folder: Path, output: Path) -> None:
    """The demonstrations in `folder`, with a frame at every step, as a LeRobot v3.0 data set in `output`.

    Raises:
        BadInput: `output` is there already, or steps lack frames.
    """
    from harness.data.lerobot_writer import write_lerobot
    from harness.data.libero_hdf5 import LiberoHdf5

    source = LiberoHdf5(tuple(folder / file.name for file in record.files), record.spec.episodes)
    write_lerobot(output, (source.read(number) for number in range(len(source))), CONTROL_HZ)


def make_shown(
    data: Data, seed: int, store: Store, workers: int, console: Console, *, quiet: bool
) -> tuple[Path, DemosRecord]:
    """Makes demonstrations on their own, with progress. Returns the folder that holds them too."""
    spec = demonstrations_spec(data, seed)
    folder = store.demonstrations(spec.digest())
    with Display(console, workers=workers, quiet=quiet) as display:
        display.start([MakeDemonstrations(data)])
        return folder, _make(spec, folder, workers, display)


def _make(spec: DemosSpec, folder: Path, workers: int, display: Display) -> DemosRecord:
    def on_progress(progress: Progress) -> None:
        display.advance(progress.done, progress.total, f"{progress.done} kept, {progress.discarded} discarded")

    return make_demonstrations(spec, folder, workers, on_progress)
