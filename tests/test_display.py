from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from harness.display import Display, spoken
from harness.estimate import Pace, plan_disk_bytes, plan_seconds, work_seconds
from harness.planning import make_plan
from harness.selection import selected
from harness.suite_file import load_suite
from harness.work import Progress, TakeTurns, Train, remaining_work

FSDP2 = Path(__file__).parents[1] / "suites" / "fsdp2.toml"
PLAN = make_plan("fsdp2", selected(load_suite(FSDP2)), "cpu-test", cuda=False)
ALL = remaining_work(PLAN, Progress())


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "0 s"), (45, "45 s"), (360, "6 min"), (3900, "1 h 05 min"), (-3, "0 s")]
)
def test_durations_are_for_people(seconds: float, words: str) -> None:
    assert spoken(seconds) == words


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_output_says_where_it_is_and_how_long_is_left() -> None:
    clock, text = Clock(), StringIO()
    display = Display(Console(file=text, width=100), workers=2, clock=clock)
    with display:
        display.start(ALL)
        clock.now = 5
        display.advance(1, 50, "episodes")
        clock.now = 30
        display.advance(10, 50, "episodes")
        clock.now = 100
        display.finish("50 kept, 1 failed and discarded")
        display.start(ALL[1:])
    lines = text.getvalue().splitlines()
    assert lines[0].startswith(f"[1/{len(ALL)}] demonstrations for libero_object, tasks 0, 1 … (about ")
    assert [line.split()[0] for line in lines[1:2]] == ["10/50"]
    assert "50 kept" in lines[2]
    assert lines[3].startswith(f"[2/{len(ALL)}] timing in turns, repeat 0: pi0-zero3, pi0-zero2, pi0-fsdp2, pi0-ddp")


def test_what_failed_is_counted_in_what_follows() -> None:
    text = StringIO()
    with Display(Console(file=text, width=100), workers=2) as display:
        display.start(ALL)
        display.finish("OOM: no memory", failed=1)
        display.start(ALL[1:])
    assert text.getvalue().splitlines()[-1].startswith(f"[2/{len(ALL)}, 1 failed] ")


def test_live_progress_fits_a_plain_terminal() -> None:
    text = StringIO()
    console = Console(file=text, width=80, height=24, force_terminal=True, color_system=None)
    with Display(console, workers=2) as display:
        display.start(ALL)
        display.finish("CRASHED: a rank ended", failed=1)
        display.start(ALL[1:])
        display.advance(12, 35, "step 12, loss 1.2345, 300 ms")
    shown = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", text.getvalue())
    lines = shown.replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 80
    assert any(f"[2/{len(ALL)}, 1 failed] timing in turns, repeat 0" in line for line in lines)
    assert any("step 12, loss 1.2345, 300 ms" in line and "left" in line for line in lines)


def test_quiet_is_quiet() -> None:
    text = StringIO()
    with Display(Console(file=text), workers=2, quiet=True) as display:
        display.start(ALL)
        display.finish("done")
    assert text.getvalue() == ""


def test_the_pace_of_finished_work_scales_what_is_left() -> None:
    pace = Pace(workers=2)
    as_expected = pace.seconds_left(ALL[1:])
    pace.record(ALL[0], 3 * work_seconds(ALL[0], 2))
    assert pace.seconds_left(ALL[1:]) == pytest.approx(3 * as_expected)
    assert pace.seconds_left(ALL[1:2], 0.5) == pytest.approx(0.5 * pace.seconds_left(ALL[1:2]))
    assert pace.seconds_left([]) == 0


def test_work_under_way_is_its_own_best_measure() -> None:
    pace = Pace(workers=2)
    assert pace.seconds_left(ALL[:1], 0.25, 100) == pytest.approx(300)
    assert pace.seconds_left(ALL[:2], 0.25, 100) == pytest.approx(300 + work_seconds(ALL[1], 2))


def test_an_estimate_falls_as_work_is_done() -> None:
    assert plan_seconds(PLAN, Progress()) > plan_seconds(PLAN, Progress(demonstrations_ready=True)) > 0
    assert all(work_seconds(work, 2) > 0 for work in ALL)
    assert plan_disk_bytes(PLAN) > 0
    trained = [run for work in ALL for run in (work.runs if isinstance(work, TakeTurns) else [work])]
    assert sum(isinstance(run, Train) for run in trained) == len(PLAN.runs)
