from __future__ import annotations

import pytest

from harness.report.figures import detectable, mib, milliseconds, number, points, ratio, signed
from harness.report.table import WIDTH, Table
from harness.statistics.interval import Interval


def interval(estimate: float, low: float | None, high: float | None) -> Interval:
    return Interval(estimate=estimate, low=low, high=high, confidence=0.95, n=2)


def test_columns_are_padded_and_pipes_escaped() -> None:
    table = Table(["a", "bb"], reading="How.")
    table.add("x|y", "1")
    assert table.text() == "| a   |  bb |\n| --- | --: |\n| x\\|y |   1 |\n\nHow."


def test_padding_goes_before_the_page_is_left() -> None:
    table = Table([f"column {i}" for i in range(8)], reading="How.")
    table.add(*(["x" * 20] + ["y"] * 7))
    table.add(*(["x"] + ["y" * 9] * 7))
    assert max(len(line) for line in table.text().splitlines()) <= WIDTH + 20
    assert "| x | " in table.text()


def test_a_row_of_another_length_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="2 columns, 1 cells"):
        Table(["a", "b"], reading="").add("x")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (1234.5, "1 234"), (0.01234, "0.0123"), (53.46, "53.5"), (999.9, "1 000")],
)
def test_numbers_keep_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_units() -> None:
    assert milliseconds(0.2994) == "299"
    assert mib(2**20 * 941) == "941"
    assert (milliseconds(None), mib(None)) == ("–", "–")


def test_intervals() -> None:
    assert ratio(interval(1.234, 1.1, 1.4)) == "1.23× [1.10–1.40]"
    assert ratio(interval(1.234, None, None)) == "1.23× [–]"
    assert ratio(interval(1.2, 0.0, 1e9)) == "1.20× [0.00–>99]"
    assert points(interval(-0.01, -0.034, 0.013)) == "−1.0 [−3.4, +1.3]"
    assert (ratio(None), points(None)) == ("–", "–")


def test_a_difference_that_rounds_to_nothing_has_no_sign() -> None:
    assert signed(-0.0001) == "0.0" and signed(0.0001) == "0.0" and signed(-0.01) == "−1.0"


def test_what_was_not_tested_detects_nothing() -> None:
    from harness.compare.verdict import Judgement, Verdict

    plain = Judgement(question="run", subject="a", metric="b", verdict=Verdict.FAILED, reason="c")
    assert detectable(plain) == "–"
