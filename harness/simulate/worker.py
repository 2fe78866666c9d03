"""One cell on DeepSpeed's real engine, in a process of its own: a cell as JSON comes in, `Counted` goes to FILE.

`python -m harness.simulate.worker FILE < cell.json`. DeepSpeed changes torch for its whole process and prints as it
pleases.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.errors import MachineFault
from harness.plan import Cell
from harness.simulate.records import Counted

_PORT = "29500"
"""DeepSpeed wants one named; nobody listens on it."""


def count_apart(cell: Cell) -> Counted:
    """As `harness.simulate.engines.count`. Raises MachineFault with the process's last words."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counted.json"
        place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(cell.ranks), "DS_ACCELERATOR": "cpu"}
        done = subprocess.run(
            [sys.executable, "-m", "harness.simulate.worker", str(file)],
            input=cell.model_dump_json(),
            env=os.environ | place | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _PORT},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise MachineFault(f"{cell.label}: could not be simulated: {done.stderr[-500:]}")
        return Counted.model_validate_json(file.read_text())


def main() -> None:
    from harness.simulate.engines import count

    cell = Cell.model_validate_json(sys.stdin.read())
    Path(sys.argv[1]).write_text(count(cell).model_dump_json())


if __name__ == "__main__":
    main()
