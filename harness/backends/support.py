"""What a backend cannot do, known before anything is started. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.plan import Cell


def unsupported(cell: Cell, cuda: bool) -> str | None:  # noqa: ARG001
    """The reason why this cell cannot run here, or None."""
    return None
