"""Everything a report is made of: the comparison, the records under it, and what lies beside them on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.compare.comparison import Comparison
from harness.compare.results import Results
from harness.history import History, with_verdicts
from harness.plan import EpisodeKey, Plan
from harness.store import ResultFolder

LOG_LINES, LOG_CHARACTERS = 40, 8000
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif")
CLIPS = (".mp4", ".webm")


@dataclass(frozen=True)
class Media:
    """A recorded picture (a contact sheet) or clip of one episode, beside the report."""

    path: Path
    relative: str
    """To the result's folder, with forward slashes."""
    size: int
    """Bytes."""

    @property
    def is_picture(self) -> bool:
        return self.path.suffix in PICTURES


@dataclass(frozen=True)
class Dossier:
    """What the plots and the page are drawn from.

    Attributes:
        logs: `PlannedRun.key` → the last lines of what its latest attempt wrote.
        media: (arm, episode) → recorded picture or clip.
        history: of the same suite, this result included; without episodes.
    """

    comparison: Comparison
    plan: Plan
    results: Results
    history: History = field(default_factory=History)
    logs: Mapping[str, str] = field(default_factory=dict)
    media: Mapping[tuple[str, EpisodeKey], Media] = field(default_factory=dict)


def gather(comparison: Comparison, plan: Plan, results: Results, folder: ResultFolder, past: History) -> Dossier:
    """Adds what the disk holds beside the records. Missing logs and media are simply not there."""
    return Dossier(
        comparison=comparison,
        plan=plan,
        results=results,
        history=with_verdicts(past, plan.suite, results.result_id, comparison.judgements),
        logs={run.key: tail for run in plan.runs if (tail := _log_tail(folder, run.key))},
        media=_media(folder, results),
    )


def _log_tail(folder: ResultFolder, run_key: str) -> str:
    """The end of torchrun's log, then of each rank's standard error and output that hold something."""
    attempts = folder.attempts(run_key)
    if not attempts:
        return ""
    logs = attempts[-1] / "logs"
    files = [logs / "torchrun.log", *sorted(logs.rglob("stderr.log")), *sorted(logs.rglob("stdout.log"))]
    parts = []
    for file in files:
        if file.is_file() and (text := _last_lines(file)):
            parts.append(f"== {_log_name(file)}\n{text}")
    return "\n".join(parts)[-LOG_CHARACTERS:]


def _log_name(file: Path) -> str:
    """`rank 1, stderr`: torchrun keeps `<run id>/attempt_<n>/<rank>/stderr.log`."""
    return f"rank {file.parent.name}, {file.stem}" if file.parent.name.isdigit() else file.stem


def _last_lines(file: Path) -> str:
    with file.open("rb") as log:
        log.seek(0, 2)
        log.seek(max(0, log.tell() - LOG_CHARACTERS))
        text = log.read().decode(errors="replace")
    return "\n".join(text.rstrip().splitlines()[-LOG_LINES:])


def _media(folder: ResultFolder, results: Results) -> dict[tuple[str, EpisodeKey], Media]:
    """Files named like an episode's recorded actions, in any folder beside them: a picture goes before a clip."""
    found: dict[tuple[str, EpisodeKey], Media] = {}
    for arm in {episode.arm for episode in results.episodes}:
        files: dict[str, Path] = {}
        for suffix in (*CLIPS, *PICTURES):
            files |= {file.stem: file for file in sorted(folder.arm(arm).glob(f"*/*{suffix}"))}
        for episode in results.episodes:
            key = episode.key
            file = files.get(f"{key.task_suite}-{key.task}-{key.initial_state}-{key.seed}")
            if episode.arm == arm and file is not None:
                relative = file.relative_to(folder.path).as_posix()
                found[arm, key] = Media(file, relative, file.stat().st_size)
    return found
