"""The tables by name, on a real result. After a wanted change: UPDATE_GOLDEN=1 pytest tests/report."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.errors import BadInput
from harness.report.dossier import Dossier
from harness.report.table import Table
from harness.report.tables import NARROWEST, TABLES, table_text

GOLDEN = Path(__file__).parent / "golden"


def all_tables(real: Dossier, width: int) -> str:
    return "\n".join(table_text(name, real.comparison, real.plan, width) for name in TABLES)


@pytest.mark.parametrize("width", [100, 60])
def test_the_tables_are_the_stored_ones(real: Dossier, width: int) -> None:
    file = GOLDEN / f"real-tables-{width}.md"
    text = all_tables(real, width)
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("width", [100, 80])
def test_no_table_is_wider_than_asked_and_each_says_how_to_read_it(real: Dossier, width: int) -> None:
    for name in TABLES:
        lines = table_text(name, real.comparison, real.plan, width).splitlines()
        assert max(map(len, lines)) <= width, name
        end = max(i for i, line in enumerate(lines) if line.startswith("|"))
        assert lines[end + 1] == "" and lines[end + 2][0].isalpha()


def test_a_narrow_table_says_what_it_left_out(real: Dossier) -> None:
    text = table_text("throughput", real.comparison, real.plan, NARROWEST + 10)
    assert "Tokens/s |" not in text and "Left out to fit 50 columns: Tokens/s, Runs" in text


def test_the_answer_is_never_spared() -> None:
    table = Table(["Cell", "vs zero3", "Runs"], reading="How.", spare=("Runs",))
    table.add("x" * 60, "1.2×", "2/2")
    assert "1.2×" in table.text(40) and "2/2" not in table.text(40)
    assert table.columns == ["Cell", "vs zero3", "Runs"]  # the table itself is left as it was


def test_unknown_names_and_widths_are_told(real: Dossier) -> None:
    with pytest.raises(BadInput, match='did you mean "throughput"'):
        table_text("thruput", real.comparison, real.plan)
    with pytest.raises(BadInput, match="40 columns or more"):
        table_text("memory", real.comparison, real.plan, 20)
