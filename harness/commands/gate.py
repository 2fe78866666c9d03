"""`harness gate`: a suite as a nightly check, with what a job's page needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands.output import Output
from harness.commands.suites import Request, plan_of, run_plan
from harness.errors import ExitCode
from harness.machine import fingerprint, fingerprint_under
from harness.store import ResultFolder, read_record, write_atomically

if TYPE_CHECKING:
    from harness.compare.comparison import Comparison


def gate(request: Request, junit: Path | None, bridge: str | None, output: Output) -> ExitCode:
    """Runs what is left of the suite, measures alarms again, and ends with the verdict's exit code.

    Args:
        bridge: interpreter of the old software's environment, to be run beside the new in the same blocks.

    Raises:
        BadInput: a test of this plan cannot fire; nothing was run.
    """
    from harness.compare.bridge import bridged
    from harness.compare.comparison import Comparison
    from harness.compare.sight import refuse_blind_gate
    from harness.reading import read_plan
    from harness.run import read_baseline

    suite = request.load().model_copy(update={"purpose": "gate"})
    plan = plan_of(request.suite.stem, suite)
    baseline = read_baseline(output.baseline_folder.file(plan.hardware_key, plan.suite))
    refuse_blind_gate(plan, baseline)
    if bridge is not None:
        fingerprint_under(bridge, fingerprint())  # an interpreter that cannot run the harness is refused now
        plan = bridged(plan, bridge)
    code = run_plan(plan, request.suite.read_text(), output)
    result = next(found for found in reversed(output.store.results(plan.suite)) if read_plan(found) == plan)
    publish(read_record(result.comparison_file, Comparison), result, junit, output)
    return code


def publish(comparison: Comparison, result: ResultFolder, junit: Path | None, output: Output) -> None:
    """`junit.xml` and `summary.md` beside the report; on GitHub, annotations and the job's summary too."""
    from harness.report import ci

    xml, summary = ci.junit(comparison), ci.summary(comparison)
    write_atomically(result.junit_file, xml)
    write_atomically(result.summary_file, summary)
    if junit is not None:
        write_atomically(junit, xml)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in ci.workflow_commands(comparison):
            output.console.print(line, markup=False, highlight=False, soft_wrap=True)
    if job := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(job).open("a") as file:
            file.write(summary)
