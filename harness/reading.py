"""What the disk says of a result: how far it has come, and all that it holds."""

from __future__ import annotations

from dataclasses import replace

from harness.compare.results import Results
from harness.compare.verdict import Alarms
from harness.errors import DamagedRecord
from harness.libero.records import ArmRecord, EpisodeRecord
from harness.plan import EpisodeKey, Plan, PlannedRun
from harness.store import ResultFolder, read_lines, read_record
from harness.train.launch import latest_checkpoint, read_steps
from harness.train.records import Outcome, RunRecord
from harness.work import AttemptState, Progress


def read_plan(result: ResultFolder) -> Plan:
    return read_record(result.plan_file, Plan)


def read_progress(result: ResultFolder, plan: Plan, demonstrations_ready: bool) -> Progress:
    """Raises DamagedRecord naming the file when something that should be whole is not."""
    progress = Progress(
        demonstrations_ready=demonstrations_ready,
        attempts={run.key: _attempt_states(result, run) for run in [*plan.runs, *plan.confirmations]},
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


def _attempt_states(result: ResultFolder, run: PlannedRun) -> list[AttemptState]:
    states = []
    for folder in result.attempts(run.key):
        record_file = folder / "run.json"
        record = read_record(record_file, RunRecord) if record_file.exists() else None
        checkpoint = latest_checkpoint(folder)
        states.append(
            AttemptState(
                number=int(folder.name.removeprefix("attempt-")),
                outcome=str(record.outcome) if record else None,
                checkpoint=str(checkpoint) if checkpoint else None,
                in_turns=record is not None and record.in_turns is not None,
            )
        )
    return states


def _evaluated(result: ResultFolder, arm: str) -> frozenset[EpisodeKey]:
    """Episodes that need not be played again: an error is no outcome, and has another go with the next command."""
    outcomes = {record.key: record.outcome for record in read_lines(result.episodes_file(arm), EpisodeRecord)}
    return frozenset(key for key, outcome in outcomes.items() if outcome != "error")


def read_results(result: ResultFolder, plan: Plan) -> Results:
    """Everything recorded so far: the latest ended attempt of each run, every episode once."""
    runs = _ended_runs(result, plan.runs)
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
        confirmation_runs=_ended_runs(result, plan.confirmations),
        confirmation_episodes=[episode for episode in episodes if episode.key in again],
    )


def _ended_runs(result: ResultFolder, planned: list[PlannedRun]) -> list[RunRecord]:
    found = []
    for run in planned:
        ended = [folder for folder in result.attempts(run.key) if (folder / "run.json").exists()]
        if ended:
            record = read_record(ended[-1] / "run.json", RunRecord)
            if record.run != run:
                raise DamagedRecord(f"{ended[-1] / 'run.json'}: belongs to another plan than {result.plan_file}")
            found.append(record)
    return found
