"""One process group: torchrun and its ranks, on one host or several, started, followed, ended, recorded.

What the ranks have to say is in files (`harness.train.journal`); what they leave unsaid, torchrun's report and the
kernel's counters tell. Never imports torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from harness.machine import Fingerprint, fingerprint_under
from harness.store import RUN_FILE, read_record, write_record
from harness.train.agent import SPEC_FILE, Agent, Hosts, Torchrun, last_words, torchrun_log
from harness.train.ending import gather_figures
from harness.train.journal import LOGS, failure_file, report_file
from harness.train.outcome import Evidence, TorchrunReport, judge, late_rank, read_torchrun_report
from harness.train.records import AgentEnd, Failure, HostRecord, Outcome, RankFailure, RunRecord, RunSpec, StepRow
from harness.train.watch import StepsFollower, dump_stacks

_PEER_SECONDS = 10.0
"""How long the other hosts may take to notice by themselves that the ranks of one have failed."""


class ProcessGroup:
    """torchrun and its ranks: started by the constructor, gone after `stop`. `record` is there when they have ended."""

    def __init__(
        self,
        spec: RunSpec,
        worker: str,
        fingerprint: Fingerprint,
        hang_seconds: float,
        start_seconds: float,
        hosts: Hosts | None = None,
    ) -> None:
        self.record: RunRecord | None = None
        self._spec, self._fingerprint, self._hosts = spec, fingerprint, hosts
        self._hang_seconds, self._start_seconds = hang_seconds, start_seconds
        self._attempt, self._ranks = Path(spec.folder), spec.run.cell.ranks
        (self._attempt / LOGS).mkdir(parents=True, exist_ok=True)
        write_record(self._attempt / SPEC_FILE, spec)
        self._follower = StepsFollower(self._attempt, self._ranks)
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._started = self._alive = time.monotonic()
        meeting, others = hosts.start(spec, worker) if hosts else (None, [])
        self._torchrun = Torchrun(spec, worker, meeting)
        self._agents: list[Agent] = [self._torchrun, *others]
        """By node."""
        self._ended: list[int] = []
        """Nodes whose torchrun has ended, in this order."""
        self._failed_at: float | None = None

    @property
    def ending(self) -> int | None:
        """See `Torchrun.ending`, of this host's."""
        return self._torchrun.ending

    def look(self, on_step: Callable[[StepRow], None], waits: bool) -> None:
        """Hands on the steps made since the last look, and concludes the run when it has ended or hangs.

        Args:
            waits: it is not this group's turn, so that nothing is expected of it.
        """
        over = self._is_over()
        if self._follower.poll(on_step) or waits:
            self._alive = time.monotonic()
        patience = self._hang_seconds + (0 if self._follower.steps else self._start_seconds)
        if over:
            loss = self._judge_loss()  # before more time passes
            self.stop()
            self.conclude(*(loss or self._judge_files()))
        elif time.monotonic() - self._alive > patience:
            outcome, failure = self._hung(patience)
            self.stop()
            self.conclude(outcome, failure)

    def ask_to_stop(self) -> None:
        for agent in self._agents:
            agent.ask_to_stop()

    def stop(self) -> None:
        """Ends torchrun and every process below it, on all hosts that can be reached, gently first."""
        self.ask_to_stop()
        for agent in self._agents:
            agent.stop()

    def conclude(self, outcome: Outcome, failure: Failure | None) -> None:
        """Writes what stays of the run, `run.json` last."""
        figures = gather_figures(self._spec, outcome, self._fingerprint.gpus)
        ends = [agent.ended() for agent in self._agents]
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
            host=ends[0].conditions if ends[0] else None,
            hosts=self._host_records(ends),
            **figures,
        )
        write_record(self._attempt / RUN_FILE, self.record)

    def _is_over(self) -> bool:
        """All have ended; or a host is lost; or one has failed and the others have had time to notice."""
        for node, agent in enumerate(self._agents):
            if node not in self._ended and (end := agent.ended()) is not None:
                self._ended.append(node)
                if end.exit_code != 0 and self._failed_at is None:
                    self._failed_at = time.monotonic()
        if len(self._ended) == len(self._agents) or any(agent.lost() for agent in self._agents):
            return True
        return self._failed_at is not None and time.monotonic() - self._failed_at > _PEER_SECONDS

    def _judge_loss(self) -> tuple[Outcome, Failure] | None:
        """A host that is gone explains whatever the ranks of the others say."""
        for node, agent in enumerate(self._agents):
            if (why := agent.lost()) is not None and self._hosts is not None:
                ranks = self._ranks_of(node)
                named = ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
                reason = f"host {self._hosts.names[node]} ({named}) is lost: {why}"
                return Outcome.CRASHED, Failure(
                    reason=reason, rank=None, exit_code=None, traceback=None, host=self._hosts.names[node]
                )
        return None

    def _judge_files(self) -> tuple[Outcome, Failure | None]:
        ranks = range(self._ranks)
        files = [failure_file(self._attempt, rank) for rank in ranks]
        ends = [end for agent in self._agents if (end := agent.ended()) is not None]
        in_order = [end for node in self._ended if (end := self._agents[node].ended()) is not None]
        outcome, failure = judge(
            Evidence(
                ranks=self._ranks,
                exit_code=next((end.exit_code for end in in_order if end.exit_code != 0), 0),
                failures=[read_record(file, RankFailure) for file in files if file.exists()],
                torchrun=self._torchrun_report(),
                reported=frozenset(rank for rank in ranks if report_file(self._attempt, rank).exists()),
                out_of_memory_kills=sum(end.out_of_memory_kills for end in ends),
                last_words={rank: last_words(self._attempt, *self._place_of(rank)) for rank in ranks},
                address_space_limited=self._spec.address_space_bytes is not None,
            )
        )
        return outcome, failure and self._with_host(failure)

    def _torchrun_report(self) -> TorchrunReport:
        """Of all hosts; the first failure is that of the host whose torchrun ended first."""
        nodes = [*self._ended, *(node for node in range(len(self._agents)) if node not in self._ended)]
        files = [torchrun_log(self._attempt, node) for node in nodes]
        reports = [read_torchrun_report(file.read_text(errors="replace")) for file in files if file.exists()]
        codes = {rank: code for report in reports for rank, code in report.exit_codes.items()}
        return TorchrunReport(codes, next((report.first for report in reports if report.first is not None), None))

    def _hung(self, patience: float) -> tuple[Outcome, Failure]:
        for agent in self._agents:
            agent.ask_for_stacks()
        stacks = dump_stacks(self._attempt, self._ranks)
        self._torchrun.kill_ranks()
        culprit = late_rank(stacks)
        phases = [self._follower.phase(rank) for rank in range(self._ranks)]
        reason = f"no rank made progress for {patience:g} s; "
        if culprit is None:
            reason += f"no single rank is at fault (while {phases[0]})"
        else:
            reason += f"rank {culprit} did not join its peers (while {phases[culprit]})"
        stack = stacks.get(culprit) if culprit is not None else stacks.get(0)
        return Outcome.HUNG, self._with_host(
            Failure(reason=reason, rank=culprit, exit_code=None, traceback=stack or None)
        )

    def _place_of(self, rank: int) -> tuple[int, int]:
        """Node and local rank: torchrun's static rendezvous numbers the ranks node by node."""
        return divmod(rank, self._ranks // len(self._agents))

    def _ranks_of(self, node: int) -> list[int]:
        return [rank for rank in range(self._ranks) if self._place_of(rank)[0] == node]

    def _with_host(self, failure: Failure) -> Failure:
        if self._hosts is None or failure.rank is None:
            return failure
        host = self._hosts.names[self._place_of(failure.rank)[0]]
        return failure.model_copy(update={"host": host, "reason": f"host {host}: {failure.reason}"})

    def _host_records(self, ends: list[AgentEnd | None]) -> list[HostRecord]:
        if self._hosts is None:
            return []
        return [
            HostRecord(
                name=name,
                address=address,
                ranks=self._ranks_of(node),
                fingerprint=fingerprint_under(self._spec.run.python, fingerprint),
                conditions=end.conditions if end else None,
            )
            for node, (name, address, fingerprint, end) in enumerate(
                zip(self._hosts.names, self._hosts.addresses, self._hosts.fingerprints, ends, strict=True)
            )
        ]
