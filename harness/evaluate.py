"""Evaluating one arm of a plan: which policy, under which protocol, what is left, what is kept."""

from __future__ import annotations

from pathlib import Path

from harness.display import Display
from harness.errors import HarnessError
from harness.libero.pool import evaluate
from harness.libero.protocol import preset
from harness.libero.records import ArmRecord, EpisodeRecord, Protocol
from harness.machine import Fingerprint
from harness.plan import Plan, PlannedArm
from harness.policies.base import Policy
from harness.store import ResultFolder, append_line, read_lines, read_record, write_record
from harness.work import Evaluate


def evaluate_arm(work: Evaluate, plan: Plan, result: ResultFolder, machine: Fingerprint, display: Display) -> None:
    """Runs the episodes that have no record yet; each is on disk before the next begins.

    Raises:
        HarnessError: the arm's earlier episodes were run under another protocol, or the policy cannot be loaded.
    """
    assert plan.evaluation is not None
    protocol = preset(plan.evaluation.protocol)
    folder, file = result.arm(work.arm.name), result.episodes_file(work.arm.name)
    export = _export_folder(work.arm, result)
    arm_file = folder / "protocol.json"
    arm = _arm_record(arm_file, work.arm, protocol, export, machine)
    earlier = len(read_lines(file, EpisodeRecord))
    counts: dict[str, int] = {}

    def on_record(record: EpisodeRecord) -> None:
        append_line(file, record.model_dump_json())
        counts[record.outcome] = counts.get(record.outcome, 0) + 1
        display.advance(sum(counts.values()), len(work.episodes), _spoken(counts))

    report = evaluate(
        work.arm.name,
        (lambda: _load(export)) if export else None,
        list(work.episodes),
        protocol,
        workers=plan.evaluation.workers,
        max_tries=plan.evaluation.max_tries,
        on_record=on_record,
        actions_folder=folder / "actions",
    )
    write_record(arm_file, arm.model_copy(update={"gl_vendor": report.gl_vendor, "gl_renderer": report.gl_renderer}))
    display.finish(_spoken(counts) + (f", {earlier} more from before" if earlier else ""))


def _export_folder(arm: PlannedArm, result: ResultFolder) -> Path | None:
    if arm.checkpoint is not None:
        return Path(arm.checkpoint)
    if arm.run_key is None:
        return None
    return result.attempts(arm.run_key)[-1] / "export"


def _load(export: Path) -> Policy:
    from harness.policies.checkpoint import CheckpointPolicy

    return CheckpointPolicy(export)


def _arm_record(
    file: Path, arm: PlannedArm, protocol: Protocol, export: Path | None, machine: Fingerprint
) -> ArmRecord:
    """The record of what makes this arm's episodes; an earlier one must agree."""
    if file.exists():
        earlier = read_record(file, ArmRecord)
        if earlier.protocol != protocol:
            raise HarnessError(
                f"{file.parent} holds episodes under protocol {earlier.protocol.name} ({earlier.protocol.digest()}), "
                f"not {protocol.name} ({protocol.digest()}): protocols are never mixed; use another --results"
            )
        return earlier
    record = ArmRecord(
        arm=arm.name,
        policy=str(export) if export else arm.name,
        protocol=protocol,
        fingerprint=machine,
        gl_vendor=None,
        gl_renderer=None,
    )
    write_record(file, record)
    return record


def _spoken(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "nothing left to do"
