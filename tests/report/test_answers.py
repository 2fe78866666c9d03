"""What a reader who knows nothing is told first."""

from __future__ import annotations

import pytest
from comparison_records import a_plan, some_results

from harness.compare.comparison import Comparison, compare
from harness.compare.throughput import Finding
from harness.compare.verdict import Verdict
from harness.report.answers import MOST_ANSWERS, answers

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
