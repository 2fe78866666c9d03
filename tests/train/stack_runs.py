"""Many runs for the price of a few process groups: what tests of backends and stacks compare."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import native_runs as native
import pytest

from harness.plan import Cell, RunKind
from harness.store import write_record
from harness.train.ending import gather_figures, read_steps
from harness.train.records import Outcome


class Done:
    """A finished run: its figures by their names in `RunRecord`, its folder, its rows."""

    def __init__(self, folder: Path, cell: Cell, figures: dict[str, Any]) -> None:
        self.folder, self.cell, self.figures = folder, cell, SimpleNamespace(**figures)
        self.rows = read_steps(folder)

    @property
    def losses(self) -> list[float]:
        return [row.loss for row in self.rows]

    @property
    def norms(self) -> list[float]:
        return [row.gradient_norm for row in self.rows]


def together(
    root: Path, cells: Mapping[str, Cell], *, resume: Mapping[str, Path] | None = None, **run: Any
) -> dict[str, Done]:
    """Learning runs of these cells, in this order, in one process group."""
    specs = {}
    for name, cell in cells.items():
        order = native.spec(root / name, cell, kind=RunKind.LEARNING, resume_from=(resume or {}).get(name), **run)
        (root / name / "logs").mkdir(parents=True)
        write_record(root / name / "spec.json", order)
        specs[name] = order
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        patch.setenv("SPECS", os.pathsep.join(str(root / name / "spec.json") for name in specs))
        record = native.run(specs[list(specs)[-1]], worker="several")
    assert record.outcome is Outcome.OK, record.failure
    return {
        name: Done(root / name, cells[name], gather_figures(order, Outcome.OK, gpus=[]))
        for name, order in specs.items()
    }


def backend_cell(name: str, options: dict[str, Any] | None = None, **settings: Any) -> Cell:
    """As `native_runs.cell`; a name that begins with "trainer-" is that backend on the trainer stack.

    Args:
        options: instead of the backend's own.
    """
    stack, _, backend = name.rpartition("-")
    plain = native.cell(backend, **({"stack": stack} if stack else {}) | settings).model_dump()
    return Cell.model_validate(plain | ({"backend": options} if options else {}))
