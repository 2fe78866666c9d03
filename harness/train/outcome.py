"""From what a process group left behind to how its run ended, and whose fault it was. Pure; no torch here."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.train.records import Failure, Outcome, RankFailure

_REPORTED = re.compile(r"rank\s*:\s*(\d+) \(local_rank.*?\n\s*exitcode\s*:\s*(-?\d+)")
_WAITING_PLACES = (
    "torch/distributed/",
    "torch/autograd/",
    "deepspeed/comm/",
    "harness/train/local_barrier.py",
    "harness/train/turns.py",
)
"""Where a rank stands that waits for its peers: in a collective, in a backward whose hooks reduce gradients, between
steps, or at the end of its turn."""


@dataclass(frozen=True)
class TorchrunReport:
    """What torchrun prints when a rank has failed: exit codes by rank, and the first failure it saw."""

    exit_codes: Mapping[int, int]
    first: int | None


@dataclass(frozen=True)
class Evidence:
    """All that is known of a group that has ended without the harness ending it.

    Attributes:
        exit_code: torchrun's own; negative for a signal.
        failures: what the ranks wrote themselves.
        reported: ranks whose final report is on disk.
        out_of_memory_kills: by the kernel, while the run was going.
        address_space_limited: whether the ranks could map only so much.
        last_words: the end of each rank's standard error.
    """

    ranks: int
    exit_code: int
    failures: Sequence[RankFailure]
    torchrun: TorchrunReport
    reported: frozenset[int]
    out_of_memory_kills: int
    last_words: Mapping[int, str]
    address_space_limited: bool = False


def read_torchrun_report(text: str) -> TorchrunReport:
    """Finds the report in torchrun's output; empty when there is none."""
    codes = {int(rank): int(code) for rank, code in _REPORTED.findall(text)}
    first = _REPORTED.search(text, max(0, text.find("Root Cause")))
    return TorchrunReport(codes, int(first[1]) if first else None)


def judge(evidence: Evidence) -> tuple[Outcome, Failure | None]:
    """The outcome, and for everything but OK the rank at fault with its own words.

    A rank that died of a signal, if torchrun saw it die first, comes before one that raised; a rank that raised
    comes before its peers, whose connections broke or timed out because of it. When all that is known is that some
    timed out, the one that did not is the one they waited for.
    """
    if evidence.exit_code == 0 and len(evidence.reported) == evidence.ranks:
        return Outcome.OK, None
    codes, first = evidence.torchrun.exit_codes, evidence.torchrun.first
    own = sorted((f for f in evidence.failures if not f.waited), key=lambda failure: failure.at)
    if first is not None and codes[first] < 0 and codes[first] != -signal.SIGTERM:
        return _killed(first, codes[first], evidence)
    if own:
        return own[0].outcome, _raised(own[0], codes)
    silent = [rank for rank, code in sorted(codes.items()) if code not in (0, -signal.SIGTERM)]
    silent = [rank for rank in silent if rank not in {failure.rank for failure in evidence.failures}]
    if silent:
        return _ended_silently(silent[0], codes[silent[0]], evidence)
    return _only_waited(evidence) if evidence.failures else _unexplained(evidence)


def _killed(rank: int, code: int, evidence: Evidence) -> tuple[Outcome, Failure]:
    outcome, reason = Outcome.CRASHED, f"rank {rank} was killed by signal {-code} ({signal.Signals(-code).name})"
    if code == -signal.SIGKILL and evidence.out_of_memory_kills > 0:
        outcome, reason = Outcome.OOM, f"{reason}; the kernel counted an out-of-memory kill meanwhile"
    elif code == -signal.SIGSEGV and evidence.address_space_limited:
        # setrlimit(2): beyond RLIMIT_AS a stack does not grow, and its process gets SIGSEGV.
        outcome, reason = Outcome.OOM, f"{reason}, as happens where a stack cannot grow in a limited address space"
    return outcome, Failure(reason=reason, rank=rank, exit_code=code, traceback=evidence.last_words.get(rank) or None)


def _raised(failure: RankFailure, codes: Mapping[int, int]) -> Failure:
    reason, peak = f"rank {failure.rank}: {failure.reason}", None
    if failure.outcome is Outcome.OOM:
        allocated = failure.peak_allocated_bytes
        peak = failure.peak_resident_bytes if allocated is None else allocated
        kind = "resident" if allocated is None else "allocated"
        reason += (
            f" (while {failure.phase}" + ("" if peak is None else f"; {peak // 2**20} MiB {kind} at the peak") + ")"
        )
    return Failure(
        reason=reason,
        rank=failure.rank,
        exit_code=codes.get(failure.rank),
        traceback=failure.traceback,
        phase=failure.phase,
        peak_bytes=peak,
    )


def _ended_silently(rank: int, code: int, evidence: Evidence) -> tuple[Outcome, Failure]:
    if code < 0:
        return _killed(rank, code, evidence)
    reason = f"rank {rank} ended with exit code {code} and no exception of its own"
    words = evidence.last_words.get(rank) or None
    return Outcome.CRASHED, Failure(reason=reason, rank=rank, exit_code=code, traceback=words)


def _only_waited(evidence: Evidence) -> tuple[Outcome, Failure]:
    waited = {failure.rank for failure in evidence.failures}
    missing = sorted(set(range(evidence.ranks)) - waited)
    earliest = min(evidence.failures, key=lambda failure: failure.at)
    culprit = missing[0] if missing else None
    who = f"rank {culprit} did not come" if missing else "nobody can say for whom"
    reason = f"rank {earliest.rank} waited for its peers until {earliest.reason!r}; {who}"
    code = None if culprit is None else evidence.torchrun.exit_codes.get(culprit)
    words = earliest.traceback if culprit is None else evidence.last_words.get(culprit) or earliest.traceback
    return Outcome.HUNG, Failure(reason=reason, rank=culprit, exit_code=code, traceback=words)


def _unexplained(evidence: Evidence) -> tuple[Outcome, Failure]:
    code, first = evidence.exit_code, evidence.torchrun.first
    if code < 0:
        reason = f"torchrun was killed by signal {-code} ({signal.Signals(-code).name})"
    elif code == 0:
        missing = sorted(set(range(evidence.ranks)) - evidence.reported)
        reason = f"torchrun ended well, but ranks {missing} left no report"
    else:
        reason = f"torchrun ended with exit code {code}, and no rank says why"
    words = evidence.last_words.get(first or 0) or None
    return Outcome.CRASHED, Failure(reason=reason, rank=first, exit_code=code, traceback=words)


def late_rank(stacks: Mapping[int, str]) -> int | None:
    """The rank the others wait for, from the stacks of all (faulthandler's text): the one outside of collectives.

    None when all of them wait, or none of them does.
    """
    busy = sorted(rank for rank, text in stacks.items() if not _waits(text))
    return busy[0] if busy and (len(busy) < len(stacks) or len(stacks) == 1) else None


def _waits(stack: str) -> bool:
    main_thread = stack.rpartition("Current thread")[2] or stack
    innermost = re.search(r'File "([^"]+)", line', main_thread)
    return innermost is not None and any(place in innermost[1] for place in _WAITING_PLACES)
