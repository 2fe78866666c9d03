"""What is validated, and what came of it: the records of `harness validate`. No torch here."""

from __future__ import annotations

from typing import Literal

from harness.plan import PlannedRun
from harness.records import Record, Value
from harness.validate.findings import Finding

Check = Literal["trains", "parity", "checkpoint", "resume", "export"]
CHECKS: tuple[Check, ...] = ("trains", "parity", "checkpoint", "resume", "export")
"""In the order in which they are made: each needs what those before it left on disk, but for parity."""

Outcome = Literal["ok", "FAILED", "UNSUPPORTED", "not reached"]


class Row(Value):
    """One model under one backend on one stack."""

    label: str
    """The cell's label in the plan."""
    model: str
    backend: str
    """A key of `harness.backends.options.VARIANTS`."""
    stack: str


class Validation(Record):
    """`validation.json`: what one command validates, beside the plan it follows."""

    rows: list[Row]
    """Those that are asked for. The plan also has the DDP run of each model, which the losses are held against."""
    versions: dict[str, str]


class ContractReport(Record):
    """`contract/<model>.json`: what was found in a model without a launch."""

    model: str
    findings: list[Finding]
    profile: str
    """A table to paste into a suite."""
    why: list[str]
    """A sentence for each choice in the profile."""

    @property
    def broken(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


class Answer(Value):
    """What one check says."""

    outcome: Outcome
    detail: str = ""
    """What was found, or why it is not ok."""


class Trial(Record):
    """`validate/<label>.json`: everything that was tried of one row."""

    row: Row
    run: PlannedRun | None
    """None: unsupported, so nothing was run."""
    answers: dict[Check, Answer]
    resolved_mode: str | None = None
    loss_gap: float | None = None
    """Largest difference from the losses under DDP on the native stack, over all steps."""
    resume_gap: float | None = None
    """Largest difference from the losses of the uninterrupted run, over the steps made after the resume."""
    checkpoint_bytes: int | None = None
    checkpoint_save_seconds: float | None = None
    checkpoint_load_seconds: float | None = None

    @property
    def failed(self) -> bool:
        return any(answer.outcome == "FAILED" for answer in self.answers.values())


def unsupported_trial(row: Row, reason: str) -> Trial:
    return Trial(row=row, run=None, answers={check: Answer(outcome="UNSUPPORTED", detail=reason) for check in CHECKS})
