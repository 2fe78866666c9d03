"""Where a command reads and writes, and how it speaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from harness.store import BaselineFolder, Store


@dataclass(frozen=True)
class Output:
    """Folders and manners of one command. Imports nothing heavy: `harness --help` passes through here."""

    results: Path
    baselines: Path
    json: bool
    quiet: bool

    @property
    def store(self) -> Store:
        from harness.store import Store

        return Store(self.results)

    @property
    def baseline_folder(self) -> BaselineFolder:
        from harness.store import BaselineFolder

        return BaselineFolder(self.baselines)

    @property
    def console(self) -> Console:
        """Progress goes to stderr when stdout belongs to a program."""
        from rich.console import Console

        return Console(stderr=self.json)
