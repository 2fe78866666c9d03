"""`harness serve` and `harness replay`: a checkpoint for other evaluators, and pictures of episodes that were run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.errors import BadInput
from harness.records import Value
from harness.store import ResultFolder, Store

if TYPE_CHECKING:
    from harness.libero.replay import View

LOOPBACK = ("127.0.0.1", "localhost", "::1")
VIDEOS, PICTURES = (".mp4", ".mkv", ".mov"), (".png", ".jpg")


def serve(checkpoint: Path, host: str, port: int, threads: int) -> None:
    """Loads a checkpoint and serves it until interrupted."""
    from harness.policies.checkpoint import CheckpointPolicy
    from harness.policies.serve import serve_checkpoint

    if not (checkpoint / "model.safetensors").is_file():
        raise BadInput("CHECKPOINT", None, str(checkpoint), "an export folder with model.safetensors")
    console = Console(stderr=True)
    policy = CheckpointPolicy(checkpoint, threads)
    card = policy.card
    metadata = {"model": card.model, "size": card.size, "cameras": list(card.cameras)}
    if host not in LOOPBACK:
        console.print(f"[yellow]anybody who can reach {host} can use this model[/yellow]")

    def on_ready(url: str) -> None:
        console.print(f"{card.model} ({card.size}) at {url}, openpi's protocol; health at /healthz", highlight=False)

    try:
        serve_checkpoint(policy, metadata, host, port, on_ready)
    except OSError as error:
        raise BadInput("--port", None, port, f"an address that is free ({error.strerror})") from None


@dataclass(frozen=True)
class ReplayRequest:
    """What to replay, and how to show it."""

    episode: str
    output: Path
    cameras: str
    size: int
    failures: bool
    check: bool


def replay(request: ReplayRequest, store: Store, as_json: bool) -> None:
    """A video of one episode, or a contact sheet of all that failed in a result."""
    from harness.libero.film import write_video
    from harness.libero.replay import Replayer, recorded_episode
    from harness.libero.worker import ONE_THREAD

    view = _view(request)
    _check_output(request)
    os.environ.update(ONE_THREAD)  # MuJoCo, Mesa and NumPy are not loaded yet
    if request.failures:
        shown = _failures(request, store.find(request.episode), view)
        _say(shown, as_json)
        return
    episode = recorded_episode(Path(request.episode))
    replayer = Replayer(view)
    try:
        frames = write_video(request.output, replayer.frames(episode))
        if request.check:
            replayer.check(episode)
    finally:
        replayer.close()
    record = episode.record
    _say(Shown(output=str(request.output), frames=frames, outcome=record.outcome, checked=request.check), as_json)


class Shown(Value):
    """What `harness replay` wrote."""

    output: str
    frames: int
    """Of a contact sheet: pictures."""
    outcome: str
    checked: bool
    """Whether the images the policy was shown were compared too."""


_MOMENTS = 5
"""Pictures of one failed episode, evenly spaced, the first and the last among them."""


def _failures(request: ReplayRequest, result: ResultFolder, view: View) -> Shown:
    from PIL import Image

    from harness.libero.film import contact_sheet
    from harness.libero.pool import actions_name
    from harness.libero.replay import Replayer, recorded_episode, recorded_episodes
    from harness.libero.sheets import moments

    rows, replayer = [], Replayer(view)
    try:
        for arm in sorted((result.path / "evaluate").glob("*/")):
            failed = [record for record in recorded_episodes(arm) if record.outcome == "failure"]
            for record in sorted(failed, key=lambda r: (r.key.task_suite, r.key.task, r.key.initial_state)):
                episode = recorded_episode(arm / "actions" / actions_name(record.key))
                frames = list(replayer.frames(episode, moments(len(episode.actions), _MOMENTS)))
                key = record.key
                label = f"{arm.name}: {key.task_suite} {key.task}, state {key.initial_state}, {record.steps} steps"
                rows.append((label, frames))
    finally:
        replayer.close()
    if not rows:
        raise BadInput("RESULT", None, request.episode, "a result with failed episodes; it has none")
    Image.fromarray(contact_sheet(rows)).save(request.output)
    return Shown(
        output=str(request.output), frames=sum(len(frames) for _, frames in rows), outcome="failure", checked=False
    )


def _view(request: ReplayRequest) -> View:
    from harness.libero.replay import CAMERAS, View

    cameras = tuple(name.strip() for name in request.cameras.split(","))
    for name in cameras:
        if name not in CAMERAS:
            raise BadInput("--cameras", None, name, "a camera of LIBERO's scenes", CAMERAS)
    return View(cameras=cameras, size=request.size)


def _check_output(request: ReplayRequest) -> None:
    ending = request.output.suffix.lower()
    fit = PICTURES if request.failures else VIDEOS
    if ending not in fit:
        raise BadInput("--output", None, str(request.output), f"a name that ends in {' or '.join(fit)}")
    if not request.output.resolve().parent.is_dir():
        raise BadInput("--output", None, str(request.output), "a file in a folder that is there")


def _say(shown: Shown, as_json: bool) -> None:
    if as_json:
        print(shown.model_dump_json(indent=1))
    else:
        checked = ", every image the policy was shown at its first and last look compared" if shown.checked else ""
        print(f"{shown.output}: {shown.frames} pictures, {shown.outcome}{checked}")
