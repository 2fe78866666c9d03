"""A table that stays within the page's width where its contents allow; Markdown here, HTML in `harness.report.html`."""

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
        spare: columns a narrow page can do without, the first to go first.

    A row whose first cell is empty belongs to the row above it.
    """

    columns: list[str]
    reading: str
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spare: tuple[str, ...] = ()

    def add(self, *cells: str) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(self.columns)} columns, {len(cells)} cells: {cells}")
        self.rows.append(list(cells))

    def text(self, width: int = WIDTH) -> str:
        """The table, its reading line and its notes.

        Padding goes first where the table is too wide, then spare columns.
        """
        table = self._narrowed(width)
        widths = table._widths()
        if max(map(len, table._lines(widths))) > width:
            widths = [0] * len(table.columns)
        notes = [bullet(note, width) for note in dict.fromkeys(table.notes)]
        parts = ["\n".join(table._lines(widths)), paragraph(table.reading, width), "\n".join(notes)]
        return "\n\n".join(part for part in parts if part)

    def _narrowed(self, width: int) -> Table:
        table, dropped = self, []
        for name in self.spare:
            if max(map(len, table._lines([0] * len(table.columns)))) <= width:
                break
            if name in table.columns:
                table = table._without(name)
                dropped.append(name)
        if dropped:
            table.notes.append(f"Left out to fit {width} columns: {', '.join(dropped)}.")
        return table

    def _without(self, name: str) -> Table:
        gone = self.columns.index(name)
        rows = [[cell for i, cell in enumerate(row) if i != gone] for row in self.rows]
        columns = [column for i, column in enumerate(self.columns) if i != gone]
        return Table(columns, self.reading, rows, list(self.notes))

    def _widths(self) -> list[int]:
        return [max(3, *(len(row[i]) for row in (self.columns, *self.rows))) for i in range(len(self.columns))]

    def _lines(self, widths: list[int]) -> list[str]:
        return [_line(self.columns, widths), _rule(widths), *(_line(row, widths) for row in self.rows)]


def _line(cells: list[str], widths: list[int]) -> str:
    first, *others = (cell.replace("|", "\\|") for cell in cells)
    padded = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
    return "| " + " | ".join(padded) + " |"


def _rule(widths: list[int]) -> str:
    first, *others = (max(3, width) for width in widths)
    return "| " + " | ".join(["-" * first, *("-" * (width - 1) + ":" for width in others)]) + " |"


def paragraph(text: str, width: int = WIDTH) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def bullet(text: str, width: int = WIDTH) -> str:
    return textwrap.fill(
        text, width, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
