"""`harness validate`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from harness.backends.footprint import STRATEGIES
from harness.commands.output import Output
from harness.display import spoken
from harness.errors import BadInput, ExitCode
from harness.machine import fingerprint
from harness.models import MODELS, build
from harness.store import ResultFolder, read_record, write_atomically, write_record
from harness.validate.advice import advise_profile, profile_toml
from harness.validate.campaign import Pace, carry_out, open_result, read_trials, rows_left
from harness.validate.contract import check_model
from harness.validate.findings import Finding
from harness.validate.records import ContractReport, Row, Trial
from harness.validate.request import STACKS, ValidationRequest, planned, suite_key
from harness.validate.sources import check_script
from harness.validate.table import details, markdown
from harness.validate.trial import Trials

_SCRIPT = ".py"
_IN_FULL = 4
"""So many trials are shown check by check; more of them as a table."""


def validate(request: ValidationRequest, every: bool, write: Path | None, output: Output) -> ExitCode:
    """
    Args:
        every: all models of ours, all backends, both stacks.
        write: a file for the table.
    """
    if any(name.endswith(_SCRIPT) for name in request.models):
        return _read_scripts(request.models, output.console)
    asked = _asked(request, every)
    machine, console = fingerprint(), output.console
    validation, plan = planned(asked, machine)
    result = open_result(validation, plan, output.store, shlex.join(["harness", *sys.argv[1:]]))
    progress = _Progress(console, len(validation.rows), Pace(plan), output.quiet)
    progress.say(f"result: {result.path}")
    with result.locked():
        contracts = [_contract(model, asked.size, result) for model in asked.models]
        progress.done = len(validation.rows) - len(rows_left(validation, result))
        for trial in carry_out(validation, plan, result, Trials(result, machine), progress.begin):
            progress.end(trial)
    made = read_trials(validation, result)
    table = markdown(made, validation.versions)
    for file in (result.validation_report_file, *([write] if write else [])):
        write_atomically(file, table)
    _show(console, made, table)
    for contract in contracts:
        _show_contract(console, contract, briefly=every)
    broken = any(trial.failed for trial in made) or any(contract.broken for contract in contracts)
    return ExitCode.FAILED if broken else ExitCode.OK


def _asked(request: ValidationRequest, every: bool) -> ValidationRequest:
    """Raises BadInput."""
    if every and request.models:
        raise BadInput("--all", None, ", ".join(request.models), "no MODEL beside it: --all takes all of them")
    if not every and not request.models:
        raise BadInput("MODEL", None, None, "one or more, or --all", MODELS)
    return replace(request, models=list(MODELS), backends=list(STRATEGIES), stacks=list(STACKS)) if every else request


def _read_scripts(names: list[str], console: Console) -> ExitCode:
    """What the files of training scripts show; nothing is run. Raises BadInput."""
    if models := [name for name in names if not name.endswith(_SCRIPT)]:
        raise BadInput("MODEL", None, models[0], "training scripts alone, or models alone")
    findings = {name: check_script(Path(name)) for name in names}
    for name, found in findings.items():
        _show_findings(console, name, found)
    return (
        ExitCode.FAILED
        if any(each.severity == "error" for found in findings.values() for each in found)
        else ExitCode.OK
    )


def _contract(model: str, size: str, result: ResultFolder) -> ContractReport:
    """What the model is like without a launch; read again where an interrupted command has left it."""
    file = result.contract_file(suite_key(model))
    if file.exists():
        return read_record(file, ContractReport)
    anew = partial(build, model, size)
    advice = advise_profile(anew)
    report = ContractReport(
        model=model,
        findings=check_model(anew),
        profile=profile_toml(advice.profile, suite_key(model)),
        why=list(advice.why),
    )
    write_record(file, report)
    return report


class _Progress:
    """Lines of progress: a row begins, a row has ended."""

    def __init__(self, console: Console, rows: int, pace: Pace, quiet: bool) -> None:
        self._console, self._rows, self._pace, self._quiet = console, rows, pace, quiet
        self.done = 0

    def say(self, line: str) -> None:
        if not self._quiet:
            _say(self._console, line)

    def begin(self, group: list[Row], left: list[Row]) -> None:
        models = ", ".join(row.model for row in group)
        place = f"{self.done + 1}" if len(group) == 1 else f"{self.done + 1}-{self.done + len(group)}"
        seconds = spoken(self._pace.seconds_left(left))
        self.say(f"[{place}/{self._rows}] {group[0].backend}, {group[0].stack}: {models} … (about {seconds} left)")

    def end(self, trial: Trial) -> None:
        self._pace.record(trial)
        self.done += 1
        said = ", ".join(f"{check} {answer.outcome}" for check, answer in trial.answers.items())
        self.say(f"    {trial.row.model}: {said}")


def _show(console: Console, trials: list[Trial], table: str) -> None:
    """A few trials in full, many as a table."""
    if len(trials) > _IN_FULL:
        _say(console, "\n" + table)
        return
    for trial in trials:
        lines = "".join(f"\n  {line}" for line in details(trial))
        _say(console, f"\n{trial.row.model}, {trial.row.backend}, {trial.row.stack}{lines}")


def _show_contract(console: Console, contract: ContractReport, briefly: bool) -> None:
    """Findings, and unless it is to be brief the profile to paste."""
    _show_findings(console, contract.model, contract.findings)
    if not briefly:
        _say(console, "\nIts profile, to be pasted into a suite:\n")
        _say(console, "".join(f"# {reason}\n" for reason in contract.why) + contract.profile)


def _show_findings(console: Console, name: str, found: list[Finding]) -> None:
    _say(console, f"\n{name}: " + (f"{len(found)} finding(s)" if found else "it keeps the contract"))
    for finding in found:
        at = f" ({finding.line})" if finding.line else ""
        _say(console, f"  {finding.severity}: {finding.rule}, where: {finding.where}{at}")
        _say(console, f"    why: {finding.why}\n    change: {finding.change}")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
