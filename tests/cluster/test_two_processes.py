"""Two hosts played by two processes of this one: real torchrun on each, meeting as over a network."""

from __future__ import annotations

import time

import psutil
from hosts import free_port, start_host, wait_for

from harness.store import read_record
from harness.train.records import Outcome, RunRecord


def test_a_run_over_two_hosts_and_one_of_them_lost(tmp_path):
    place = [f"127.0.0.1:{free_port()}", tmp_path, 2]
    first, second = start_host([0, *place, 4, 1000], "slow 0 0"), start_host([1, *place], "slow 0 0")
    try:
        wait_for(first, "OK")
        wait_for(first, "step 0")
        ranks = psutil.Process(second.pid).children(recursive=True)
        second.kill()
        killed = time.monotonic()
        rest, _ = first.communicate(timeout=60)
        assert time.monotonic() - killed < 30
    finally:
        first.kill(), second.kill()
    assert not psutil.wait_procs(ranks, timeout=10)[1]
    well = read_record(tmp_path / "attempt-1" / "run.json", RunRecord)
    assert well.outcome is Outcome.OK and well.in_force.world_size == 2
    assert [(host.address, host.ranks) for host in well.hosts] == [("127.0.0.1", [0]), ("127.0.0.1", [1])]
    assert all(host.conditions is not None and host.fingerprint.hardware_key == "cpu-test" for host in well.hosts)
    assert rest.endswith("CRASHED\n") and first.returncode == 0
    lost = read_record(tmp_path / "attempt-2" / "run.json", RunRecord)
    assert lost.outcome is Outcome.CRASHED and lost.failure.host == lost.hosts[1].name
    assert lost.failure.reason == f"host {lost.failure.host} (rank 1) is lost: it closed the connection"
