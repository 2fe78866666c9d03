"""A worker that makes several runs in one process group, one after the other: a group for each would take minutes.

`SPECS` lists their spec files, separated by colons. Sound for runs that leave torch as it was: ZeRO-3 must come last.
Each run also exports its weights before the first step, as `initial.safetensors` in its folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.processes import die_with_parent, parent_from_environment

if __name__ == "__main__":
    die_with_parent(parent_from_environment())

from harness.backends.base import Engine
from harness.store import read_record
from harness.train import worker
from harness.train.loop import LoopResult, Steps, train
from harness.train.records import RunSpec
from harness.train.world import joined

INITIAL = "initial.safetensors"


def main() -> None:
    specs = [read_record(Path(file), RunSpec) for file in os.environ["SPECS"].split(os.pathsep)]
    with worker.explained_failure(Path(specs[-1].folder), int(os.environ["RANK"])), joined(300.0) as world:
        for spec in specs:
            export_at_once(Path(spec.folder) / INITIAL, spec.run.cell.stack)
            worker.Training(spec, world).run()


def export_at_once(file: Path, stack: str) -> None:
    """Before the next run's first step, on the stack it is on."""

    def exporting(steps: Steps, engine: Engine) -> LoopResult:
        engine.export(file)
        return train(steps, engine)

    worker.train = exporting
    if stack == "trainer":
        from harness.train import hf_trainer

        own = getattr(hf_trainer.MeteredTrainer, "base", hf_trainer.MeteredTrainer)

        class Exporting(own):
            base = own

            def training_begins(self) -> None:
                super().training_begins()
                self.engine.export(file)

        hf_trainer.MeteredTrainer = Exporting


if __name__ == "__main__":
    main()
