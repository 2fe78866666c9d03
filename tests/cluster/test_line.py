"""Two ends of a line, and the words by which hosts join."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import native_runs as native
import pytest
from hosts import free_port

from harness.cluster.follower import follow
from harness.cluster.leader import gather
from harness.cluster.line import DumpStacks, Farewell, Line, Stop
from harness.cluster.nodes import Nodes
from harness.errors import ExitCode, MachineFault


def ends(lost_seconds: float = 15.0) -> tuple[Line, socket.socket]:
    """One end, and the bare other one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        return Line(server.accept()[0], lost_seconds), other


def test_messages_come_in_order_however_they_are_cut(tmp_path):
    line, other = ends()
    words = b"".join(each.model_dump_json().encode() + b"\n\n" for each in (DumpStacks(), Stop()))
    for byte in words:
        other.sendall(bytes([byte]))
    assert [line.receive(5.0), line.receive(5.0), line.receive()] == [DumpStacks(), Stop(), None]
    assert line.lost() is None
    line.close()


def test_silence_an_end_and_foreign_words_are_told_apart():
    silent, kept_open = ends(lost_seconds=0.3)
    closed, its_end = ends()
    foreign, its_words = ends()
    its_end.close()
    its_words.sendall(b"GET / HTTP/1.1\n")
    time.sleep(0.6)
    assert silent.lost().startswith("nothing was heard of it for")
    assert closed.lost() == "it closed the connection"
    assert foreign.lost() == "it does not speak as this harness does"
    for line in (silent, closed, foreign):
        line.close()
    kept_open.close()


class Follower(threading.Thread):
    """A host that follows, and how that ended."""

    def __init__(self, port: int, rank: int = 1, **own: object) -> None:
        super().__init__()
        self._nodes = Nodes(2, rank, "127.0.0.1", port)
        self._own = native.FINGERPRINT.model_copy(update=own)
        self.end: object = None
        self.start()

    def run(self) -> None:
        try:
            self.end = follow(self._nodes, self._own, print, patience_seconds=20)
        except MachineFault as error:
            self.end = str(error)


def leader(port: int, results: Path, patience_seconds: float = 20):
    return gather(Nodes(2, 0, "127.0.0.1", port), native.FINGERPRINT, results, patience_seconds)


def test_hosts_join_and_end_together(tmp_path):
    port = free_port()
    other = Follower(port, hostname="second")
    hosts = leader(port, tmp_path)
    assert hosts.names == ["test", "second"] and hosts.addresses == ["127.0.0.1", "127.0.0.1"]
    assert hosts.lost() is None and not list(tmp_path.iterdir())
    hosts.dismiss(ExitCode.FAILED)
    other.join(10)
    assert other.end is ExitCode.FAILED


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"versions": {"torch": "2.6.0"}}, "is unlike the first: torch 2.6.0 there, None here"),
        ({"hardware_key": "cpu-other"}, "is unlike the first: hardware cpu-other there, cpu-test here"),
        ({"rank": 0}, "comes as node 0, which another host is already"),
    ],
)
def test_a_host_that_cannot_take_part_ends_it_on_both_sides(tmp_path, own, why):
    port = free_port()
    other = Follower(port, **own)
    with pytest.raises(MachineFault, match=why):
        leader(port, tmp_path)
    other.join(10)
    assert why in other.end


def test_a_folder_that_is_not_shared_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.cluster.follower._text", lambda file: None)
    port = free_port()
    other = Follower(port)
    with pytest.raises(MachineFault, match="must be on a file system that all hosts share"):
        leader(port, tmp_path)
    other.join(10)
    assert "does not see" in other.end


def test_hosts_do_not_wait_for_ever(tmp_path):
    with pytest.raises(MachineFault, match="node 1 of 2 has not come"):
        leader(free_port(), tmp_path, patience_seconds=0.2)
    with pytest.raises(MachineFault, match="is the first host running its harness"):
        follow(Nodes(2, 1, "127.0.0.1", free_port()), native.FINGERPRINT, print, patience_seconds=0.2)


def test_farewell_carries_the_reason():
    line, other = ends()
    other.sendall(Farewell(reason="interrupted", exit_code=130).model_dump_json().encode() + b"\n")
    assert line.receive(5.0) == Farewell(reason="interrupted", exit_code=130)
    line.close()
