"""torchrun that ends with the process that started it: `python -m harness.train.torchrun …` takes its arguments."""

from __future__ import annotations

from harness.train.processes import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    from torch.distributed.run import main

    main()
