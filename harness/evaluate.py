"""Evaluating the arms of a plan: which policies, under which protocol, what is left, what is kept."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from harness.display import Display
from harness.errors import HarnessError, MachineFault
from harness.evaluate_progress import EvaluationProgress
from harness.libero.executors import Executor
from harness.libero.pool import ArmToPlay, evaluate
from harness.libero.probe import check_scene
from harness.libero.protocol import preset
from harness.libero.records import ArmRecord, EpisodeRecord, Protocol
from harness.machine import Fingerprint
from harness.plan import Plan, PlannedArm
from harness.policies.base import Policy
from harness.policies.probe import probe
from harness.store import ResultFolder, append_line, read_lines, read_record, write_record
from harness.suite import Evaluation, blinding_of
from harness.work import ArmEpisodes, Evaluate

PROBED_EPISODES = 100
"""With so many to play, the ten seconds of the settle probe are well spent."""


def evaluate_arms(work: Evaluate, plan: Plan, result: ResultFolder, machine: Fingerprint, display: Display) -> None:
    """Runs the episodes that have no record yet; each is on disk before the next begins.

    Every policy is probed before anything is run, and before a long evaluation the physics too.

    Raises:
        HarnessError: an arm's earlier episodes were run under another protocol, or a policy cannot be loaded, does not
            answer, or answers with what cannot be executed.
        MachineFault: the machine cannot simulate, or its physics are not LIBERO's.
    """
    assert plan.evaluation is not None
    protocol = protocol_of(plan.evaluation)
    if work.episodes >= PROBED_EPISODES and plan.evaluation.executor == "local":
        _probe_scene(display)
    records = {part.arm.name: _arm_record(part.arm, protocol, result, machine) for part in work.arms}
    progress = EvaluationProgress(work, _recorded(result, plan), plan.evaluation, plan.gate.confidence)

    def on_record(record: EpisodeRecord) -> frozenset[str]:
        append_line(result.episodes_file(record.arm), record.model_dump_json())
        unwanted = progress.take(record)
        display.advance(progress.done, work.episodes, progress.spoken())
        return unwanted

    with ExitStack() as open_policies:
        arms = [
            _arm_to_play(part, protocol, result, open_policies, display)
            for part in work.arms
            if part.arm.name not in progress.ended
        ]
        report = evaluate(
            arms,
            protocol,
            workers=plan.evaluation.workers,
            max_tries=plan.evaluation.max_tries,
            on_record=on_record,
            executor=_executor(plan.evaluation),
        )
    for arm in arms:
        rendered = {"gl_vendor": report.gl_vendor, "gl_renderer": report.gl_renderer}
        write_record(_arm_file(result, arm.name), records[arm.name].model_copy(update=rendered))
    lost = f"; {report.replaced} simulators replaced" if report.replaced else ""
    display.finish(f"{progress.spoken()} ({report.scenes} scenes compiled{lost})")


def _probe_scene(display: Display) -> None:
    for check in check_scene():
        if not check.ok:
            raise MachineFault(f"{check.detail}: {check.mend}")
        display.say(f"      {check.name}: {check.detail}")


def protocol_of(evaluation: Evaluation) -> Protocol:
    """The protocol that a plan's evaluation names, with what it changes of it."""
    return preset(evaluation.protocol, evaluation.replan_steps)


def _recorded(result: ResultFolder, plan: Plan) -> list[EpisodeRecord]:
    return [record for arm in plan.arms for record in read_lines(result.episodes_file(arm.name), EpisodeRecord)]


def _arm_to_play(
    part: ArmEpisodes, protocol: Protocol, result: ResultFolder, open_policies: ExitStack, display: Display
) -> ArmToPlay:
    arm, policy = part.arm, _policy(part.arm, protocol, result)
    if policy is not None:
        open_policies.callback(policy.close)
        for task_suite in dict.fromkeys(key.task_suite for key in part.episodes):
            answer = probe(policy, protocol, task_suite).spoken()
        display.say(f"      {arm.name}: {answer}")
    return ArmToPlay(arm.name, list(part.episodes), policy, result.arm(arm.name) / "actions")


def _policy(arm: PlannedArm, protocol: Protocol, result: ResultFolder) -> Policy | None:
    """None for a control."""
    policy, blinding = _seeing(arm, result), blinding_of(arm.name)
    if policy is None or blinding is None:
        return policy
    from harness.policies.blinded import Blinded

    return Blinded(policy, blinding, protocol)


def _seeing(arm: PlannedArm, result: ResultFolder) -> Policy | None:
    """Of an arm that is kept from seeing something, the policy as it is."""
    if arm.url is not None:
        from harness.policies.remote import remote_policy

        return remote_policy(arm.url)
    export = _export_folder(arm, result)
    if export is None:
        return None
    from harness.policies.checkpoint import CheckpointPolicy

    return CheckpointPolicy(export)


def _export_folder(arm: PlannedArm, result: ResultFolder) -> Path | None:
    if arm.checkpoint is not None:
        return Path(arm.checkpoint)
    if arm.run_key is None:
        return None
    return result.attempts(arm.run_key)[-1] / "export"


def _executor(evaluation: Evaluation) -> Executor | None:
    """None for this machine."""
    if evaluation.executor == "local":
        return None
    from harness.libero.ray_executor import RayExecutor

    return RayExecutor()


def _arm_file(result: ResultFolder, arm: str) -> Path:
    return result.arm(arm) / "protocol.json"


def _arm_record(arm: PlannedArm, protocol: Protocol, result: ResultFolder, machine: Fingerprint) -> ArmRecord:
    """The record of what makes this arm's episodes; an earlier one must agree."""
    file = _arm_file(result, arm.name)
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
        policy=arm.url or str(_export_folder(arm, result) or arm.name),
        protocol=protocol,
        fingerprint=machine,
        gl_vendor=None,
        gl_renderer=None,
    )
    write_record(file, record)
    return record
