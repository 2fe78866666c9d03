"""torchrun that ends with the process that started it: `python -m harness.train.torchrun …` takes its arguments."""

from __future__ import annotations

import os

from harness.processes import PARENT_VARIABLE, die_with_parent, parent_from_environment

if __name__ == "__main__":
    die_with_parent(parent_from_environment())
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    from torch.distributed.run import main

    main()
