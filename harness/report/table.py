"""A Markdown table that stays within 100 columns where its contents allow."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

WIDTH = 100


@dataclass
class Table:
    """Rows under a header, with a line that says how to read them.

    Attributes:
        columns: headings; the first column is aligned left, the others right.
        reading: what the reader should know before believing a cell.
        notes: reasons for what is missing or reserved; one line each.
    """

    columns: list[str]
    reading: str
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(self.columns)} columns, {len(cells)} cells: {cells}")
        self.rows.append(list(cells))

    def text(self) -> str:
        """The table, its reading line and its notes. Columns are padded unless that makes it too wide."""
        widths = [max(len(row[i]) for row in (self.columns, *self.rows)) for i in range(len(self.columns))]
        widths = [max(3, width) for width in widths]
        if sum(widths) + 3 * len(widths) + 1 > WIDTH:
            widths = [0] * len(widths)
        lines = [_line(self.columns, widths), _rule(widths), *(_line(row, widths) for row in self.rows)]
        notes = [bullet(note) for note in dict.fromkeys(self.notes)]
        parts = ["\n".join(lines), paragraph(self.reading), "\n".join(notes)]
        return "\n\n".join(part for part in parts if part)


def _line(cells: list[str], widths: list[int]) -> str:
    first, *others = (cell.replace("|", "\\|") for cell in cells)
    padded = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
    return "| " + " | ".join(padded) + " |"


def _rule(widths: list[int]) -> str:
    first, *others = (max(3, width) for width in widths)
    return "| " + " | ".join(["-" * first, *("-" * (width - 1) + ":" for width in others)]) + " |"


def paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def bullet(text: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
