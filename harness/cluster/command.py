"""`harness run` on one of several hosts: the first leads, the others follow."""

from __future__ import annotations

from collections.abc import Callable

from harness.cluster.follower import follow
from harness.cluster.leader import GatheredHosts, gather
from harness.cluster.nodes import Nodes
from harness.commands.output import Output
from harness.errors import ExitCode, HarnessError
from harness.machine import fingerprint


def run_over(nodes: Nodes, output: Output, run: Callable[[GatheredHosts], ExitCode]) -> ExitCode:
    """
    Args:
        run: what the first host does once all have come.

    Raises:
        HarnessError: as `gather`, `follow` and `run` raise it. The other hosts end too.
    """
    console = output.console

    def say(line: str) -> None:
        if not output.quiet:
            console.print(line, highlight=False, soft_wrap=True)

    if not nodes.leads:
        say(f"node {nodes.rank} of {nodes.count}: follows {nodes.host}:{nodes.port}")
        return follow(nodes, fingerprint(), say)
    say(f"node 0 of {nodes.count}: waiting for the others at port {nodes.port}")
    hosts = gather(nodes, fingerprint(), output.results)
    say(f"hosts: {', '.join(hosts.names)}")
    code, reason = ExitCode.BUG, "the first host stopped"
    try:
        code = run(hosts)
        reason = "all is done"
    except HarnessError as error:
        code, reason = error.exit_code, str(error)
        raise
    except KeyboardInterrupt:
        code, reason = ExitCode.INTERRUPTED, "interrupted"
        raise
    finally:
        hosts.dismiss(code, reason)
    return code
