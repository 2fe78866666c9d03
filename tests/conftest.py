"""For tests of every room."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli import main

ROOT = Path(__file__).parents[1]


@pytest.fixture
def typed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command line as `python -m harness` does, in this process: starting Python and its imports takes longer
    than most commands. Working folder, environment, arguments and signal handlers are put back."""

    def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        environment, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
        capfd.readouterr()
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            patch.setattr(sys, "argv", ["harness", *arguments])
            try:
                main()
                code: object = 0
            except SystemExit as end:
                code = end.code
            finally:
                signal.signal(signal.SIGTERM, handler)
                os.environ.clear()
                os.environ.update(environment)
        printed = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, int(str(code or 0)), printed.out, printed.err)

    return run
