"""A worker that makes several runs in one process group, one after the other: a group for each would take minutes.

`SPECS` lists their spec files, separated by colons. Sound for runs that leave torch as it was: ZeRO-3 must come last.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.processes import die_with_parent, parent_from_environment

if __name__ == "__main__":
    die_with_parent(parent_from_environment())

from harness.store import read_record
from harness.train.records import RunSpec
from harness.train.worker import Training, explained_failure
from harness.train.world import joined


def main() -> None:
    specs = [read_record(Path(file), RunSpec) for file in os.environ["SPECS"].split(os.pathsep)]
    with explained_failure(Path(specs[-1].folder), int(os.environ["RANK"])), joined(300.0) as world:
        for spec in specs:
            Training(spec, world).run()


if __name__ == "__main__":
    main()
