"""One host of a run over two: `python one_host.py RANK HOST:PORT FOLDER RANKS STEPS…`. The first makes one run for each
number of steps, with a fault of `sabotage` or none, and says each step it makes and each outcome."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

import native_runs as native

from harness.cluster.follower import follow
from harness.cluster.leader import gather
from harness.cluster.nodes import find_nodes
from harness.errors import HarnessError
from harness.train.launch import launch

FINGERPRINT = native.FINGERPRINT.model_copy(update={"hostname": socket.gethostname()})


def main() -> None:
    rank, endpoint, folder, ranks, *steps = sys.argv[1:]
    nodes = find_nodes(2, int(rank), endpoint, {})
    if not nodes.leads:
        raise SystemExit(follow(nodes, FINGERPRINT, print, patience_seconds=60))
    results = Path(folder)
    hosts = gather(nodes, FINGERPRINT, results, patience_seconds=60)
    chosen = native.cell("ddp", model="one_layer:build", size="only", ranks=int(ranks))
    for number, count in enumerate(steps, 1):
        order = native.spec(results / f"attempt-{number}", chosen, steps=int(count))
        record = launch(
            order, FINGERPRINT, hang_seconds=300, worker="sabotage", hosts=hosts,
            on_step=lambda row: print(f"step {row.step}", flush=True),
        )  # fmt: skip
        print(record.outcome, flush=True)
    hosts.dismiss(12)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except HarnessError as error:
        raise SystemExit(f"harness: {error}") from None
