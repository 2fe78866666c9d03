"""What a person sees while waiting: where it is, how long is left, the last figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from harness.estimate import Pace
from harness.work import AskGate, Evaluate, MakeDemonstrations, TakeTurns, Train, Work

_PLAIN_INTERVAL_SECONDS = 20.0
"""Without a terminal, a line of progress at most this often."""


def spoken(seconds: float) -> str:
    """A duration for people: `45 s`, `6 min`, `1 h 05 min`."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def title(work: Work) -> str:
    match work:
        case MakeDemonstrations(data=data):
            return f"demonstrations for {data.task_suite}, tasks {', '.join(map(str, data.tasks))}"
        case Train(run=run, attempt=attempt):
            again = f", attempt {attempt}" if attempt > 1 else ""
            return f"{run.kind} {run.cell.label}, repeat {run.repeat}{again}"
        case TakeTurns(runs=runs):
            labels = ", ".join(train.run.cell.label for train in runs)
            return f"{runs[0].run.kind} in turns, repeat {runs[0].run.repeat}: {labels}"
        case Evaluate(arms=arms):
            return f"evaluating {', '.join(part.arm.name for part in arms)}: {work.episodes} episodes"
        case AskGate():
            return "comparing with the baseline"


class Display:
    """Progress of a whole plan: a live bar on a terminal, plain lines elsewhere, nothing when quiet."""

    def __init__(
        self, console: Console, workers: int, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._quiet, self._clock = console, quiet, clock
        self._pace = Pace(workers)
        self._remaining: list[Work] = []
        self._started = self._printed = clock()
        self._done = self._failed = 0
        live = console.is_terminal and not quiet
        self._bar = Progress(
            BarColumn(bar_width=14),
            TextColumn("[bold]{task.fields[place]}[/bold]\n{task.fields[detail]}  [dim]{task.fields[left]}[/dim]"),
            console=console,
            disable=not live,
            transient=True,
        )
        self._task: TaskID = self._bar.add_task("", place="", detail="", left="", total=1.0)
        self._live = live

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, highlight=False, soft_wrap=True)

    def start(self, remaining: list[Work]) -> None:
        """Begins the first of the remaining pieces of work."""
        self._remaining = remaining
        self._started = self._printed = self._clock()
        failed = f", {self._failed} failed" if self._failed else ""
        place = f"[{self._done + 1}/{self._done + len(remaining)}{failed}]"
        left = f"about {spoken(self._pace.seconds_left(remaining))} left"
        if self._live:
            self._bar.update(self._task, completed=0.0, place=f"\\{place} {title(remaining[0])}", detail="", left=left)
        else:
            self.say(f"\\{place} {title(remaining[0])} … ({left})")

    def advance(self, done: int, total: int, detail: str) -> None:
        """Reports on the work under way."""
        share = done / total if total else 0.0
        seconds = self._pace.seconds_left(self._remaining, share, self._clock() - self._started)
        left = f"about {spoken(seconds)} left"
        if self._live:
            self._bar.update(self._task, completed=share, detail=detail, left=left)
        elif self._clock() - self._printed >= _PLAIN_INTERVAL_SECONDS:
            self._printed = self._clock()
            self.say(f"      {done}/{total}  {detail}  ({left})")

    def finish(self, sentence: str, failed: int = 0) -> None:
        """Ends the work under way with what came of it, and how many of its runs failed."""
        work, seconds = self._remaining[0], self._clock() - self._started
        self._pace.record(work, seconds)
        self._done += 1
        self._failed += failed
        self.say(f"  [dim]{spoken(seconds):>6}[/dim]  {title(work)}: {sentence}")
