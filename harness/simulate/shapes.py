"""A model as its sharding sees it: shapes of parameters, unit by unit. Built once on `meta`, then plain numbers."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from harness.plan import Cell

if TYPE_CHECKING:
    from torch import nn


class Piece(NamedTuple):
    """One parameter."""

    rows: int
    """Its first dimension, which FSDP2 cuts."""
    row_elements: int
    trains: bool

    @property
    def elements(self) -> int:
        return self.rows * self.row_elements

    def cut(self, ranks: int) -> int:
        """Elements that each of so many ranks holds under FSDP2, padding included."""
        return -(-self.rows // ranks) * self.row_elements


class Shapes(NamedTuple):
    """Every parameter once, in the unit that gathers it."""

    root: tuple[Piece, ...]
    """What no layer owns."""
    layers: tuple[tuple[Piece, ...], ...]
    """In the order of the forward."""

    @property
    def all(self) -> tuple[Piece, ...]:
        return (*self.root, *(piece for layer in self.layers for piece in layer))

    @property
    def trained(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.all if piece.trains)


def shapes_of(cell: Cell) -> Shapes:
    """Under the model's own profile: that of a cell without one of its own."""
    return _shapes(cell.model, cell.size, cell.layout)


@lru_cache(maxsize=16)
def _shapes(name: str, size: str, layout: str) -> Shapes:
    from harness.backends.modules import sharding_units
    from harness.models import build_on_meta

    model = build_on_meta(name, size, layout)
    taken: set[int] = set()

    def new(module: nn.Module) -> tuple[Piece, ...]:
        own = [parameter for parameter in module.parameters() if id(parameter) not in taken]
        taken.update(id(parameter) for parameter in own)
        return tuple(
            Piece(p.shape[0] if p.ndim else 1, p.numel() // (p.shape[0] if p.ndim else 1), p.requires_grad) for p in own
        )

    layers = tuple(new(unit) for unit in sharding_units(model))  # innermost first: an outer unit keeps what is left
    return Shapes(new(model), layers[::-1])


def elements(pieces: tuple[Piece, ...]) -> int:
    return sum(piece.elements for piece in pieces)
