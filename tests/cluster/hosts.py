"""Starting and watching the two hosts of a test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def start_host(arguments: Sequence[object], fault: str = "none 0 0", before: Sequence[str] = ()) -> subprocess.Popen:
    """
    Args:
        before: what puts the host into its place: `ip netns exec …`.
    """
    path = os.pathsep.join([str(HERE), str(HERE.parent / "train"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [*before, sys.executable, str(HERE / "one_host.py"), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": path, "FAULT": fault},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(host: subprocess.Popen, line: str) -> None:
    """Returns when the host has said this."""
    said = []
    for each in host.stdout:
        said.append(each)
        if each.strip() == line:
            return
    raise AssertionError(f"never said {line!r}, but: {''.join(said)}")
