"""What the disk says of a result: how far it has come, and all that it holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.compare.results import Results, chosen, ended_well
from harness.compare.verdict import Alarms
from harness.errors import DamagedRecord
from harness.libero.records import ArmRecord, EpisodeRecord
from harness.plan import EpisodeKey, Plan, PlannedRun
from harness.store import RUN_FILE, ResultFolder, read_lines, read_record
from harness.train.disturbance import disturbance, usual_mhz
from harness.train.launch import latest_checkpoint, read_steps
from harness.train.records import Outcome, RunRecord
from harness.work import AttemptState, Progress


def read_plan(result: ResultFolder) -> Plan:
    return read_record(result.plan_file, Plan)


def read_progress(result: ResultFolder, plan: Plan, demonstrations_ready: bool) -> Progress:
    """Raises DamagedRecord naming the file when something that should be whole is not."""
    records = {run.key: _attempt_records(result, run) for run in [*plan.runs, *plan.confirmations]}
    mhz = usual_mhz(record for attempts in records.values() for record in attempts.values() if record is not None)
    progress = Progress(
        demonstrations_ready=demonstrations_ready,
        attempts={key: _attempt_states(attempts, mhz) for key, attempts in records.items()},
        evaluated={arm.name: _evaluated(result, arm.name) for arm in plan.arms},
    )
    if not result.alarms_file.exists():
        return progress
    said = read_record(result.alarms_file, Alarms)
    return replace(progress, alarms=tuple(said.alarms)) if said.seen == first_stage_size(plan, progress) else progress


def first_stage_size(plan: Plan, progress: Progress) -> int:
    """Attempts and episodes that the first stage of the gate had to go on; it grows with every new one."""
    attempts = sum(len(progress.attempts.get(run.key, [])) for run in plan.runs)
    planned = frozenset(plan.episodes)
    return attempts + sum(len(planned & done) for done in progress.evaluated.values())


def _attempt_records(result: ResultFolder, run: PlannedRun) -> dict[Path, RunRecord | None]:
    """Attempt folders, oldest first, and how each ended; None when nothing says how."""
    files = {folder: folder / RUN_FILE for folder in result.attempts(run.key)}
    return {folder: read_record(file, RunRecord) if file.exists() else None for folder, file in files.items()}


def _attempt_states(attempts: dict[Path, RunRecord | None], mhz: float | None) -> list[AttemptState]:
    states = []
    for folder, record in attempts.items():
        checkpoint = latest_checkpoint(folder)
        states.append(
            AttemptState(
                number=int(folder.name.removeprefix("attempt-")),
                outcome=str(record.outcome) if record else None,
                checkpoint=str(checkpoint) if checkpoint else None,
                in_turns=record is not None and record.in_turns is not None,
                disturbed=record is not None and disturbance(record, mhz) is not None,
            )
        )
    return states


def _evaluated(result: ResultFolder, arm: str) -> frozenset[EpisodeKey]:
    """Episodes that need not be played again: an error is no outcome, and has another go with the next command."""
    outcomes = {record.key: record.outcome for record in read_lines(result.episodes_file(arm), EpisodeRecord)}
    return frozenset(key for key, outcome in outcomes.items() if outcome != "error")


def read_results(result: ResultFolder, plan: Plan) -> Results:
    """Everything recorded so far: of each run one attempt that has ended, every episode once."""
    ended = _ended_runs(result, plan.runs)
    runs = [chosen(records) for records in ended]
    steps = {
        record.run.key: read_steps(result.run(record.run.key) / f"attempt-{record.attempt}")
        for record in runs
        if record.outcome is Outcome.OK
    }
    arms, episodes = [], []
    for arm in plan.arms:
        if (result.arm(arm.name) / "protocol.json").exists():
            arms.append(read_record(result.arm(arm.name) / "protocol.json", ArmRecord))
        latest = {record.key: record for record in read_lines(result.episodes_file(arm.name), EpisodeRecord)}
        episodes += list(latest.values())
    again = frozenset(plan.confirmation_episodes)
    return Results(
        result_id=result.path.name,
        command=result.command_file.read_text().strip() if result.command_file.exists() else "",
        runs=runs,
        steps=steps,
        arms=arms,
        episodes=[episode for episode in episodes if episode.key not in again],
        confirmation_runs=[chosen(records) for records in _ended_runs(result, plan.confirmations)],
        confirmation_episodes=[episode for episode in episodes if episode.key in again],
        set_aside=[record for records in ended for record in ended_well(records) if record is not chosen(records)],
    )


def _ended_runs(result: ResultFolder, planned: list[PlannedRun]) -> list[list[RunRecord]]:
    """For each run that has one: all its attempts that have ended, oldest first."""
    found = []
    for run in planned:
        attempts = _attempt_records(result, run)
        for folder, record in attempts.items():
            if record is not None and record.run != run:
                raise DamagedRecord(f"{folder / RUN_FILE}: belongs to another plan than {result.plan_file}")
        if ended := [record for record in attempts.values() if record is not None]:
            found.append(ended)
    return found
