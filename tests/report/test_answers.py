"""What a reader who knows nothing is told first."""

from __future__ import annotations

import io

import pytest
from comparison_records import a_plan, some_results
from rich.console import Console

from harness.compare.comparison import Comparison, compare
from harness.compare.throughput import Finding
from harness.compare.verdict import Confirmation, Judgement, Verdict
from harness.report.answers import MOST_ANSWERS, answers
from harness.report.terminal import show
from harness.statistics.interval import Interval

PLAN = a_plan()
WHOLE = compare(PLAN, some_results(PLAN), None, [])


def fsdp2_against_zero3(**changes: object) -> Comparison:
    """The comparison with that pair alone, changed."""
    [one] = [s for s in WHOLE.speedups if (s.candidate, s.reference) == ("pi0-fsdp2", "pi0-zero3")]
    return WHOLE.model_copy(update={"speedups": [one.model_copy(update=changes)]})


def test_the_pair_that_was_evaluated_comes_first_and_has_every_answer() -> None:
    first = answers(WHOLE)[0]
    assert first == (
        "**pi0: fsdp2 is faster than zero3: 1.25× [1.19–1.31]** (95% interval, 2 pairs of runs) at 982 MiB of peak "
        "memory against 980. LIBERO success is not shown to be kept: +4.3 [−7.0, +15.0] points."
    )
    assert all(line.endswith("LIBERO success is not measured.") for line in answers(WHOLE)[1:])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"finding": Finding.SLOWER}, "**pi0: fsdp2 is slower than zero3: "),
        ({"finding": Finding.EQUAL}, "**pi0: fsdp2 is as fast as zero3: "),
        ({"finding": Finding.NOT_SHOWN}, "**pi0: no difference in speed is shown between fsdp2 and zero3: "),
        ({"pairs": 0}, "**pi0: fsdp2 against zero3: no answer**, "),
        ({"comparable": False}, "**pi0: fsdp2 against zero3: no answer**, "),
        ({"speedup": None}, "**pi0: fsdp2 against zero3: no answer**, "),
    ],
)
def test_no_more_is_said_than_is_shown(changes: dict[str, object], says: str) -> None:
    [line] = answers(fsdp2_against_zero3(**changes))
    assert line.startswith(says)


def test_a_loss_that_does_not_agree_is_told_with_the_speed() -> None:
    [line] = answers(fsdp2_against_zero3(reservations=["loss parity not shown"]))
    assert "; loss parity not shown. LIBERO" in line


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        (Verdict.PASS, "LIBERO success is kept: "),
        (Verdict.IMPROVED, "LIBERO success is kept: "),
        (Verdict.REGRESSED, "LIBERO success got worse: "),
    ],
)
def test_success_is_called_what_its_verdict_is(verdict: Verdict, says: str) -> None:
    judgements = [j.model_copy(update={"verdict": verdict}) if j.question == "success" else j for j in WHOLE.judgements]
    assert says in answers(WHOLE.model_copy(update={"judgements": judgements}))[0]


def test_many_pairs_are_counted() -> None:
    many = WHOLE.model_copy(update={"speedups": WHOLE.speedups * 3})
    assert len(answers(many)) == MOST_ANSWERS + 1
    assert answers(many)[-1] == f"{3 * len(WHOLE.speedups) - MOST_ANSWERS} more pairs below."


REGRESSED = Judgement(
    question="baseline",
    subject="pi0-fsdp2",
    metric="step_seconds",
    verdict=Verdict.REGRESSED,
    value=0.36,
    reference=0.3,
    effect=Interval(estimate=1.2, low=1.11, high=1.3, confidence=0.999, n=5),
    effect_kind="ratio",
    n=5,
    confirmation=Confirmation(
        value=0.37,
        effect=Interval(estimate=1.23, low=1.18, high=1.29, confidence=0.98, n=5),
        n=5,
        p_value=1e-6,
        reproduced=True,
    ),
    reason="5 processes against 5",
)


def test_what_got_worse_comes_first_with_both_stages() -> None:
    red = WHOLE.model_copy(update={"judgements": [*WHOLE.judgements, REGRESSED]})
    first, *rest = answers(red)
    assert first == (
        "**pi0-fsdp2 got worse: step_seconds 1.20× [1.11–1.30] against the baseline** (360 ms against 300 ms), by 5 "
        "process groups, and 1.23× [1.18–1.29] when fresh ones measured it again."
    )
    assert rest == answers(WHOLE)
    many = WHOLE.model_copy(update={"judgements": [*WHOLE.judgements, *[REGRESSED] * 6]})
    assert answers(many)[MOST_ANSWERS:] == ["**2 more got worse**, see below.", *answers(WHOLE)]
    console = Console(file=io.StringIO(), width=80, height=24)
    show(red, console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "REGRESSED pi0-fsdp2 step_seconds: 1.20× [1.11–1.30], again 1.23× [1.18–1.29]" in lines
    assert len(lines) <= 23
