"""One process group: torchrun and its ranks, started, followed, ended, recorded. Never imports torch.

What the ranks have to say is in files (`harness.train.journal`); what they leave unsaid, torchrun's report and the
kernel's counters tell.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from harness.machine import Fingerprint, elsewhere, fingerprint_under
from harness.processes import PARENT_VARIABLE, descendants, kill_all
from harness.store import read_record, write_record
from harness.train.ending import gather_figures
from harness.train.host import HostWatch
from harness.train.journal import LOGS, failure_file, report_file
from harness.train.memory import out_of_memory_kills
from harness.train.outcome import Evidence, judge, late_rank, read_torchrun_report
from harness.train.records import Failure, Outcome, RankFailure, RunRecord, RunSpec, StepRow
from harness.train.watch import StepsFollower, dump_stacks

RUN_FILE, SPEC_FILE = "run.json", "spec.json"
_TORCHRUN_LOG = "torchrun.log"
_STOP_SECONDS = 10.0
"""How long torchrun is given to stop its ranks before they are killed."""
_WORDS = 4000
"""Characters of a rank's standard error that are kept as its last words."""

_FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_FOREIGN_PREFIXES = ("TORCHELASTIC_", "GROUP_", "ROLE_")
"""Variables by which an outer torchrun would be mistaken for ours."""


class ProcessGroup:
    """torchrun and its ranks: started by the constructor, gone after `stop`. `record` is there when they have ended."""

    def __init__(
        self, spec: RunSpec, worker: str, fingerprint: Fingerprint, hang_seconds: float, start_seconds: float
    ) -> None:
        self.record: RunRecord | None = None
        self._spec, self._fingerprint = spec, fingerprint
        self._hang_seconds, self._start_seconds = hang_seconds, start_seconds
        self._attempt, self._ranks = Path(spec.folder), spec.run.cell.ranks
        (self._attempt / LOGS).mkdir(parents=True, exist_ok=True)
        write_record(self._attempt / SPEC_FILE, spec)
        self._follower = StepsFollower(self._attempt, self._ranks)
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._started = self._alive = time.monotonic()
        self._host = HostWatch()
        self._kills_before = out_of_memory_kills() or 0
        with (self._attempt / LOGS / _TORCHRUN_LOG).open("wb") as log:
            self._process = subprocess.Popen(
                _command(spec, worker),
                env=rank_environment(os.environ) | elsewhere(spec.run.python),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is ours to handle
            )

    def look(self, on_step: Callable[[StepRow], None], waits: bool) -> None:
        """Hands on the steps made since the last look, and concludes the run when it has ended or hangs.

        Args:
            waits: it is not this group's turn, so that nothing is expected of it.
        """
        ended = self._process.poll() is not None
        if self._follower.poll(on_step) or waits:
            self._alive = time.monotonic()
        patience = self._hang_seconds + (0 if self._follower.steps else self._start_seconds)
        if ended:
            self.stop()
            self.conclude(*self._judge_files())
        elif time.monotonic() - self._alive > patience:
            outcome, failure = self._hung(patience)
            self.stop()
            self.conclude(outcome, failure)

    def ask_to_stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """Ends torchrun and every process below it, gently first. Nothing happens when all are gone."""
        below = descendants(self._process.pid)
        self.ask_to_stop()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        kill_all(below)
        self._process.wait()

    def conclude(self, outcome: Outcome, failure: Failure | None) -> None:
        """Writes what stays of the run, `run.json` last."""
        figures = gather_figures(self._spec, outcome, self._fingerprint.gpus)
        self.record = RunRecord(
            run=self._spec.run,
            attempt=self._spec.attempt,
            seed=self._spec.seed,
            outcome=outcome,
            failure=failure,
            started_at=self._started_at,
            wall_seconds=time.monotonic() - self._started,
            fingerprint=fingerprint_under(self._spec.run.python, self._fingerprint),
            in_turns=self._spec.in_turns,
            host=self._host.conditions(),
            **figures,
        )
        write_record(self._attempt / RUN_FILE, self.record)

    def _judge_files(self) -> tuple[Outcome, Failure | None]:
        ranks = range(self._ranks)
        log = (self._attempt / LOGS / _TORCHRUN_LOG).read_text(errors="replace")
        files = [failure_file(self._attempt, rank) for rank in ranks]
        return judge(
            Evidence(
                ranks=self._ranks,
                exit_code=self._process.wait(),
                failures=[read_record(file, RankFailure) for file in files if file.exists()],
                torchrun=read_torchrun_report(log),
                reported=frozenset(rank for rank in ranks if report_file(self._attempt, rank).exists()),
                out_of_memory_kills=(out_of_memory_kills() or 0) - self._kills_before,
                last_words={rank: _last_words(self._attempt, rank) for rank in ranks},
            )
        )

    def _hung(self, patience: float) -> tuple[Outcome, Failure]:
        stacks = dump_stacks(self._attempt, self._process.pid, self._ranks)
        kill_all(descendants(self._process.pid))
        culprit = late_rank(stacks)
        phases = [self._follower.phase(rank) for rank in range(self._ranks)]
        reason = f"no rank made progress for {patience:g} s; "
        if culprit is None:
            reason += f"no single rank is at fault (while {phases[0]})"
        else:
            reason += f"rank {culprit} did not join its peers (while {phases[culprit]})"
        stack = stacks.get(culprit) if culprit is not None else stacks.get(0)
        return Outcome.HUNG, Failure(reason=reason, rank=culprit, exit_code=None, traceback=stack or None)


def _command(spec: RunSpec, worker: str) -> list[str]:
    attempt = Path(spec.folder)
    python = spec.run.python or sys.executable
    torchrun = [python, "-m", "harness.train.torchrun", "--standalone", "--local-addr=127.0.0.1"]
    places = [f"--nproc-per-node={spec.run.cell.ranks}", f"--log-dir={attempt / LOGS}", "--redirects=3"]
    return [*torchrun, *places, "-m", worker, str(attempt / SPEC_FILE)]


def rank_environment(parent: Mapping[str, str]) -> dict[str, str]:
    """The environment of the ranks: the caller's, without an outer torchrun's variables, with ours.

    One thread per rank unless the caller says otherwise, as torchrun itself would set it.
    """
    kept = {
        name: value for name, value in parent.items() if name not in _FOREIGN and not name.startswith(_FOREIGN_PREFIXES)
    }
    ours = {PARENT_VARIABLE: str(os.getpid())}
    return {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **kept, **ours}


def _last_words(attempt: Path, rank: int) -> str:
    logs = sorted((attempt / LOGS).glob(f"*/attempt_0/{rank}/stderr.log"))
    return logs[-1].read_text(errors="replace")[-_WORDS:].strip() if logs else ""
