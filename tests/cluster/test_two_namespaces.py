"""Two hosts played by two network namespaces with a cable between them: addresses, names and routes of their own.

Needs root and `ip`; `nox -s clusters` runs it where these are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator

import psutil
import pytest
from hosts import start_host, wait_for

from harness.cluster.line import LOST_SECONDS
from harness.store import read_record
from harness.train.agent import STOP_SECONDS
from harness.train.records import Outcome, RunRecord

pytestmark = pytest.mark.full

A, B = "harness-test-a", "harness-test-b"
ADDRESS_A, ADDRESS_B = "10.213.7.1", "10.213.7.2"
ENDPOINT = f"{ADDRESS_A}:29500"


def ip(words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=False)


@pytest.fixture
def cable() -> Iterator[None]:
    """Both namespaces, joined."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root, and `ip` of iproute2")
    made = ip(f"netns add {A}")
    if made.returncode:
        pytest.skip(f"network namespaces cannot be made here: {made.stderr.strip()}")
    try:
        ip(f"netns add {B}")
        joined = ip(f"link add veth-a netns {A} type veth peer name veth-b netns {B}")
        assert joined.returncode == 0, joined.stderr
        for namespace, device, address in ((A, "veth-a", ADDRESS_A), (B, "veth-b", ADDRESS_B)):
            for words in ("link set lo up", f"address add {address}/24 dev {device}", f"link set {device} up"):
                assert ip(f"-n {namespace} {words}").returncode == 0
        yield
    finally:
        for namespace in (A, B):
            for pid in ip(f"netns pids {namespace}").stdout.split():
                psutil.Process(int(pid)).kill()
            ip(f"netns delete {namespace}")


def within(namespace: str, name: str) -> list[str]:
    """What starts a command there, on a host of this name."""
    return [
        "ip", "netns", "exec", namespace, "unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"
    ]  # fmt: skip


@pytest.mark.parametrize("cut", ["cable", "processes"])
def test_one_host_is_cut_off_in_the_middle(cable, tmp_path, cut):
    place = [ENDPOINT, tmp_path, 2]
    first = start_host([0, *place, 4, 1000], "slow 0 0", within(A, "host-a"))
    second = start_host([1, *place], "slow 0 0", within(B, "host-b"))
    wait_for(first, "OK")
    wait_for(first, "step 0")
    cut_at = time.monotonic()
    if cut == "cable":
        assert ip(f"-n {A} link set veth-a down").returncode == 0
    else:
        for pid in ip(f"netns pids {B}").stdout.split():
            psutil.Process(int(pid)).kill()
    rest, _ = first.communicate(timeout=60)
    ended_within = time.monotonic() - cut_at
    farewell, _ = second.communicate(timeout=60)
    print(f"{cut} cut: the first host ended after {ended_within:.1f} s")
    assert ended_within < LOST_SECONDS + STOP_SECONDS + 5
    assert not ip(f"netns pids {A}").stdout.split() and not ip(f"netns pids {B}").stdout.split()

    well = read_record(tmp_path / "attempt-1" / "run.json", RunRecord)
    assert well.outcome is Outcome.OK and well.in_force.world_size == 2
    assert [(host.name, host.address, host.ranks) for host in well.hosts] == [
        ("host-a", ADDRESS_A, [0]),
        ("host-b", ADDRESS_B, [1]),
    ]
    assert [host.fingerprint.hostname for host in well.hosts] == ["host-a", "host-b"]
    lost = read_record(tmp_path / "attempt-2" / "run.json", RunRecord)
    assert (lost.outcome, lost.failure.host, lost.speed) == (Outcome.CRASHED, "host-b", None)
    assert lost.failure.reason.startswith("host host-b (rank 1) is lost: ")
    assert rest.endswith("CRASHED\n")
    if cut == "cable":
        assert "the ranks here were stopped" in farewell and second.returncode == 1
