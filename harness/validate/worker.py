"""One rank of several runs, one after the other: `torchrun … -m harness.validate.worker SPEC.json`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness.processes import die_with_parent, parent_from_environment

if __name__ == "__main__":
    die_with_parent(parent_from_environment())  # before the slow imports, as in `harness.train.worker`

from torch.distributed.elastic.multiprocessing.errors import record

from harness.store import read_record
from harness.train.worker import Training, explained_failure
from harness.train.world import joined
from harness.validate.company import COMPANY_FILE, Company


@record
def main() -> None:
    """Makes the runs of the company beside the spec on the command line; the first that fails ends them all."""
    folder = Path(sys.argv[1]).parent
    specs = read_record(folder / COMPANY_FILE, Company).specs
    with (
        explained_failure(folder, int(os.environ["RANK"])),
        joined(max(spec.collective_timeout_seconds for spec in specs)) as world,
    ):
        for spec in specs:
            Path(spec.folder).mkdir(parents=True, exist_ok=True)
            Training(spec, world).run()


if __name__ == "__main__":
    main()
