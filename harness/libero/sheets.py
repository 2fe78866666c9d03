"""Contact sheets of recorded episodes, replayed and kept beside their records, where the page finds them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.libero.film import contact_sheet
from harness.libero.pool import actions_name
from harness.libero.records import EpisodeRecord
from harness.libero.replay import NotTheEpisode, Recorded, Replayer, View, recorded_episode, recorded_episodes
from harness.store import ResultFolder, write_atomically

OUTCOMES = {"failures": ("failure",), "all": ("success", "failure")}
"""What may be asked for → outcomes of the episodes shown. One that ended in an error has no actions to replay."""
_MOMENTS, _ROWS = 8, 2
_PIXELS = 160
_JPEG_QUALITY = 80
"""About 40 KiB a sheet."""


def moments(steps: int, count: int) -> list[int]:
    """`count` moments of an episode, evenly spaced, the first (at rest) and the last among them."""
    return [round(index * steps / (count - 1)) for index in range(count)]


def write_sheets(result: ResultFolder, which: str, say: Callable[[str], None]) -> list[Path]:
    """One JPEG per episode, `<arm's folder>/sheets/<task suite>-<task>-<state>-<seed>.jpg`; returns all there are.

    A sheet that is there is kept. An episode that cannot be replayed is told to `say` and left out.

    Args:
        which: a key of `OUTCOMES`.

    Raises: DiskFull.
    """
    found, replayer = [], Replayer(View(cameras=("agentview",), size=_PIXELS))
    try:
        for arm in sorted(result.path.glob("evaluate/*/")):
            for record in _wanted(arm, which):
                file = (arm / "sheets" / actions_name(record.key)).with_suffix(".jpg")
                if not file.exists():
                    try:
                        write_atomically(file, _jpeg(_sheet(replayer, _recorded(arm, record))))
                    except (NotTheEpisode, FileNotFoundError) as error:
                        say(f"no contact sheet: {error}")
                        continue
                found.append(file)
    finally:
        replayer.close()
    return found


def _wanted(arm: Path, which: str) -> list[EpisodeRecord]:
    """Those of one task together, so that its scene is compiled once."""
    chosen = [record for record in recorded_episodes(arm) if record.outcome in OUTCOMES[which]]
    return sorted(chosen, key=lambda record: (record.key.task_suite, record.key.task, record.key.initial_state))


def _recorded(arm: Path, record: EpisodeRecord) -> Recorded:
    actions = arm / "actions" / actions_name(record.key)
    if not actions.exists():
        raise FileNotFoundError(f"{actions} is not there")
    return recorded_episode(actions)


def _sheet(replayer: Replayer, episode: Recorded) -> NDArray[np.uint8]:
    """Two rows of pictures, each row below the steps it shows."""
    chosen = moments(len(episode.actions), _MOMENTS)
    frames = dict(zip(sorted(set(chosen)), replayer.frames(episode, chosen), strict=True))
    columns = _MOMENTS // _ROWS
    rows = [chosen[start : start + columns] for start in range(0, _MOMENTS, columns)]
    return contact_sheet(
        [(f"after steps {', '.join(map(str, row))}", [frames[moment] for moment in row]) for row in rows]
    )


def _jpeg(sheet: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    made = io.BytesIO()
    Image.fromarray(sheet).save(made, format="JPEG", quality=_JPEG_QUALITY)
    return made.getvalue()
