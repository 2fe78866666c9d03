"""Cells on DeepSpeed's real engine, apart from this process: cells as JSON come in, a file of `Counted` each goes out.

`python -m harness.simulate.worker FOLDER < cells.json`. DeepSpeed changes torch for its whole process and prints as it
pleases, so every cell has one of its own: a fork of the one that has imported it.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from harness.errors import MachineFault
from harness.plan import Cell
from harness.simulate.records import Counted

_CELLS = TypeAdapter(list[Cell])
_PORT = "29500"
"""DeepSpeed wants one named; nobody listens on it."""


def count_apart(cells: Sequence[Cell]) -> list[Counted]:
    """As `harness.simulate.engines.count`, cell by cell. Raises MachineFault with the process's last words."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "harness.simulate.worker", folder],
            input=_CELLS.dump_json(list(cells)),
            env=os.environ | {"DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _PORT},
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            label = cells[len(list(Path(folder).iterdir()))].label  # they are done in order
            raise MachineFault(f"{label}: could not be simulated: {done.stderr.decode(errors='replace')[-500:]}")
        return [Counted.model_validate_json(_file(folder, number).read_text()) for number in range(len(cells))]


def _file(folder: str, number: int) -> Path:
    return Path(folder) / f"counted-{number}.json"


def _count_one(cell: Cell, file: Path) -> None:
    from harness.simulate.engines import count

    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(cell.ranks))
    file.write_text(count(cell).model_dump_json())


def main() -> None:
    import deepspeed  # noqa: F401  (once, for all that are forked off)

    import harness.simulate.engines  # noqa: F401

    context = multiprocessing.get_context("fork")
    for number, cell in enumerate(_CELLS.validate_json(sys.stdin.read())):
        child = context.Process(target=_count_one, args=(cell, _file(sys.argv[1], number)))
        child.start()
        child.join()
        if child.exitcode != 0:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
