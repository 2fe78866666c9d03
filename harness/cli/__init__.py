"""The command line: commands and their help, by subject. What they do is in `harness.commands`, imported when asked."""

from __future__ import annotations

import errno
import signal
import sys
import traceback

import typer

from harness.cli import baselines, episodes, models, results, suites
from harness.errors import ExitCode, HarnessError

app = typer.Typer(
    name="harness",
    help="Which training backend is faster on your VLA model and machine, does it still learn the same thing, "
    "and did last night's change make it worse?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Start with `harness doctor`, then `harness run suites/smoke.toml`. "
    "Exit codes: 0 shown, 2 bad input, 10 regressed, 11 not shown, 12 a run failed, 130 interrupted.",
)
for subject in (suites, episodes, results, models):
    app.add_typer(subject.app)
app.add_typer(baselines.app, name="baseline")


def main() -> None:
    """Entry point: every foreseen problem is one line on stderr and an exit code.

    SIGTERM, as a cluster's scheduler sends it, is an interruption like Ctrl-C.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(standalone_mode=True)
    except HarnessError as error:
        _end(f"harness: {error}", error.exit_code)
    except KeyboardInterrupt:
        _end("harness: interrupted; the same command goes on from here", ExitCode.INTERRUPTED)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _end(f"harness: {error.filename}: the disk is full; free some space and run again", ExitCode.USAGE)
    except Exception:
        traceback.print_exc()
        _end("harness: this is a fault of the harness itself; please report it with the lines above", ExitCode.BUG)


def _end(message: str, code: ExitCode) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(code)
