import pytest

from harness.train.outcome import Evidence, TorchrunReport, judge, late_rank, read_torchrun_report
from harness.train.records import Outcome, RankFailure

REPORT = """
worker FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-01_00:00:01
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 6287)
  error_file: <N/A>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 6288)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 6288
"""


def failure(rank: int, *, waited: bool = False, at: float = 0.0, outcome: Outcome = Outcome.CRASHED) -> RankFailure:
    return RankFailure(rank=rank, outcome=outcome, reason="E: x", traceback=f"of {rank}", waited=waited, at=at)


def evidence(*failures: RankFailure, codes: dict[int, int], first: int | None = None, **more) -> Evidence:
    plain = {"ranks": 2, "exit_code": 1, "reported": frozenset(), "out_of_memory_kills": 0, "last_words": {}}
    return Evidence(failures=failures, torchrun=TorchrunReport(codes, first), **(plain | more))


def test_torchrun_report_is_read():
    report = read_torchrun_report(REPORT)
    assert dict(report.exit_codes) == {0: -15, 1: -9}
    assert report.first == 1
    assert read_torchrun_report("all went well").first is None


def test_all_reported_is_ok():
    good = evidence(codes={}, exit_code=0, reported=frozenset({0, 1}))
    assert judge(good) == (Outcome.OK, None)


def test_a_missing_report_is_never_ok():
    outcome, why = judge(evidence(codes={}, exit_code=0, reported=frozenset({0})))
    assert outcome is Outcome.CRASHED
    assert "[1] left no report" in why.reason


def test_killed_rank_comes_before_what_its_peers_say():
    outcome, why = judge(evidence(failure(0), codes={0: 1, 1: -9}, first=1))
    assert (outcome, why.rank, why.exit_code) == (Outcome.CRASHED, 1, -9)


def test_kill_with_memory_evidence_is_out_of_memory():
    outcome, why = judge(evidence(codes={0: -15, 1: -9}, first=1, out_of_memory_kills=1))
    assert (outcome, why.rank) == (Outcome.OOM, 1)
    assert judge(evidence(codes={1: -11}, first=1, out_of_memory_kills=1))[0] is Outcome.CRASHED


def test_raising_rank_comes_before_waiting_ones_and_late_kills():
    outcome, why = judge(evidence(failure(0, waited=True, at=1.0), failure(1, at=2.0), codes={0: -9, 1: 1}, first=1))
    assert (outcome, why.rank, why.traceback) == (Outcome.CRASHED, 1, "of 1")


def test_earliest_of_several_raising_ranks():
    assert judge(evidence(failure(0, at=2.0), failure(1, at=1.0), codes={0: 1, 1: 1}, first=0))[1].rank == 1


def test_a_segmentation_fault_in_a_limited_address_space_is_out_of_memory():
    """Where a stack cannot grow the kernel sends SIGSEGV (setrlimit(2), RLIMIT_AS)."""
    outcome, why = judge(evidence(codes={0: -11, 1: -15}, first=0, address_space_limited=True))
    assert (outcome, why.rank) == (Outcome.OOM, 0)
    assert "a stack cannot grow in a limited address space" in why.reason
    assert judge(evidence(codes={0: -11, 1: -15}, first=0))[0] is Outcome.CRASHED
    assert judge(evidence(codes={0: -9, 1: -15}, first=0, address_space_limited=True))[0] is Outcome.CRASHED


def test_out_of_memory_says_where_and_how_far():
    short = failure(0, outcome=Outcome.OOM).model_copy(update={"phase": "training", "peak_resident_bytes": 3 * 2**20})
    outcome, why = judge(evidence(short, codes={0: 1}, first=0))
    assert (outcome, why.phase, why.peak_bytes) == (Outcome.OOM, "training", 3 * 2**20)
    assert why.reason == "rank 0: E: x (while training; 3 MiB resident at the peak)"
    on_gpu = short.model_copy(update={"peak_allocated_bytes": 5 * 2**20})
    assert judge(evidence(on_gpu, codes={0: 1}, first=0))[1].peak_bytes == 5 * 2**20


def test_silent_exit():
    outcome, why = judge(evidence(failure(0, waited=True), codes={0: 1, 1: 7}, first=0))
    assert (outcome, why.rank, why.exit_code) == (Outcome.CRASHED, 1, 7)


def test_only_timeouts_blame_the_rank_without_one():
    outcome, why = judge(evidence(failure(0, waited=True), codes={0: 1, 1: -15}, first=0))
    assert (outcome, why.rank) == (Outcome.HUNG, 1)


def test_torchrun_killed():
    outcome, why = judge(evidence(codes={}, exit_code=-9))
    assert outcome is Outcome.CRASHED
    assert "torchrun was killed by signal 9 (SIGKILL)" in why.reason


WAITING = """Thread 0x7f (most recent call first):
  File "/x/somewhere.py", line 1 in poll

Current thread 0x7e (most recent call first):
  File "/env/torch/distributed/distributed_c10d.py", line 5000 in barrier
  File "/src/harness/train/loop.py", line 60 in measured_step
"""
BUSY = """Current thread 0x7e (most recent call first):
  File "/src/data.py", line 7 in at
  File "/src/harness/train/loop.py", line 90 in _step
"""


AT_THE_BARRIER = """Current thread 0x7e (most recent call first):
  File "/src/harness/train/local_barrier.py", line 120 in _receive
  File "/src/harness/train/world.py", line 50 in synchronise
"""


@pytest.mark.parametrize("waiting", [WAITING, AT_THE_BARRIER])
def test_late_rank_is_the_one_outside_of_collectives(waiting):
    assert late_rank({0: waiting, 1: BUSY}) == 1
    assert late_rank({0: waiting, 1: ""}) == 1  # a stopped process does not answer
    assert late_rank({0: BUSY}) == 0


def test_nobody_is_blamed_without_a_difference():
    assert late_rank({0: WAITING, 1: WAITING}) is None
    assert late_rank({0: BUSY, 1: BUSY}) is None
