"""The main job: do what is left of a plan, compare, report. Everything resumes by being asked again."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.compare.baseline import Acceptance, Baseline, Expiry, accept, expire
from harness.compare.bridge import carry
from harness.compare.comparison import Comparison, compare
from harness.compare.gate import first_stage_alarms
from harness.compare.published import load_published
from harness.compare.results import Results
from harness.compare.verdict import Alarms
from harness.data.sources import check_paths
from harness.demonstrations import demonstrations_folder, demonstrations_ready, make_planned
from harness.display import Display
from harness.evaluate import evaluate_arms
from harness.history import History, read_history
from harness.machine import Fingerprint, git_commit
from harness.plan import Plan, PlannedRun, RunKind
from harness.reading import first_stage_size, read_plan, read_progress, read_results
from harness.report.dossier import Dossier, gather
from harness.report.markdown import render
from harness.store import RUN_FILE, BaselineFolder, ResultFolder, Store, read_record, write_atomically, write_record
from harness.train.agent import Hosts
from harness.train.launch import launch, launch_in_turns
from harness.train.records import Outcome, RunRecord, RunSpec, StepRow
from harness.trends import trends
from harness.work import (
    AskGate,
    Evaluate,
    MakeDemonstrations,
    Progress,
    TakeTurns,
    Train,
    Work,
    next_work,
    remaining_work,
)

HANG_SECONDS = 120.0
"""A run none of whose ranks makes a step for this long has hung. Starting DeepSpeed takes about 20."""


@dataclass(frozen=True)
class Workplace:
    """Where things are read and written, and on what machine."""

    store: Store
    baselines: BaselineFolder
    machine: Fingerprint
    """This host, or all of `hosts` together (`harness.machine.over_nodes`)."""
    command: str
    profile: bool = False
    """Timing runs of the first repeat leave a trace of two further steps."""
    hosts: Hosts | None = None
    """Where the ranks are, if they are on several."""


Doing = Callable[[Plan, ResultFolder, Workplace, Display], None]


def carry_out(
    plan: Plan, suite_text: str, place: Workplace, display: Display, do: Doing | None = None
) -> tuple[ResultFolder, Comparison]:
    """Does all that is left of a plan in its unfinished result, or in a new one.

    Args:
        do: who does it; None: this process, by `do_remaining_work`.

    Raises:
        KeyboardInterrupt: what was under way is stopped and recorded; the same call goes on from there.
        BadInput: the training data, or a tokenizer, is not where the suite says.
        HarnessError: a damaged record, a full disk, a machine without what the plan needs.
    """
    for run in plan.runs:
        check_paths(run.cell.data)
    result = unfinished_result(plan, place.store) or _new_result(plan, suite_text, place)
    display.say(f"result: {result.path}")
    with result.locked():
        (do or do_remaining_work)(plan, result, place, display)
        dossier = conclude_dossier(result, place)
        write_page(result, dossier)
        return result, dossier.comparison


def unfinished_result(plan: Plan, store: Store) -> ResultFolder | None:
    """The newest result of this very plan, if it has work left."""
    for result in reversed(store.results(plan.suite)):
        if read_plan(result) == plan:
            left = next_work(plan, progress_of(plan, result, store))
            return result if left is not None or not result.comparison_file.exists() else None
    return None


def _new_result(plan: Plan, suite_text: str, place: Workplace) -> ResultFolder:
    result = place.store.new_result(plan.suite, plan.digest(), place.command)
    write_atomically(result.suite_file, suite_text)
    write_record(result.plan_file, plan)
    return result


def progress_of(plan: Plan, result: ResultFolder | None, store: Store) -> Progress:
    """How far a plan has come; with no result yet, only demonstrations can be there already."""
    ready = plan.needs_demonstrations and demonstrations_ready(plan, store)
    return read_progress(result, plan, ready) if result else Progress(demonstrations_ready=ready)


def do_remaining_work(
    plan: Plan, result: ResultFolder, place: Workplace, display: Display, only: frozenset[str] | None = None
) -> None:
    """`tried` holds what has had its turn since the command was started: a failure waits for the next command.

    Args:
        only: names of work; others do the rest. None: all of it.
    """
    tried: frozenset[str] = frozenset()
    while remaining := _wanted(remaining_work(plan, progress_of(plan, result, place.store), tried), only):
        if left_behind := _without_host(remaining, place.hosts):
            display.say(f"[red]{place.hosts and place.hosts.lost()}[/red]; what needs it waits for the next command")
            tried |= left_behind
            continue
        work = remaining[0]
        display.start(remaining)
        match work:
            case MakeDemonstrations():
                make_planned(plan, place.store, display)
            case Train():
                _train(work, plan, result, place, display)
            case TakeTurns():
                _take_turns(work, plan, result, place, display)
            case Evaluate():
                evaluate_arms(work, plan, result, place.machine, display)
            case AskGate():
                ask_gate(plan, result, place, display)
        tried |= work.names


def _without_host(remaining: Sequence[Work], hosts: Hosts | None) -> frozenset[str]:
    """What cannot be done for want of a host that is lost."""
    if hosts is None or hosts.lost() is None:
        return frozenset()
    return frozenset().union(*(work.names for work in remaining if isinstance(work, Train)))


def _wanted(remaining: list[Work], only: frozenset[str] | None) -> list[Work]:
    return remaining if only is None else [work for work in remaining if work.names & only]


def ask_gate(plan: Plan, result: ResultFolder, place: Workplace, display: Display) -> None:
    results = read_results(result, plan)
    baseline = read_baseline(place.baselines.file(plan.hardware_key, plan.suite))
    alarms = first_stage_alarms(baseline, plan, results)
    write_record(
        result.alarms_file,
        Alarms(
            baseline=baseline.history[-1].at if baseline else None,
            seen=first_stage_size(plan, progress_of(plan, result, place.store)),
            alarms=alarms,
        ),
    )
    names = ", ".join(f"{alarm.subject} {alarm.metric}" for alarm in alarms)
    display.finish(f"to be measured again: {names}" if alarms else "nothing alarms")


def _train(work: Train, plan: Plan, result: ResultFolder, place: Workplace, display: Display) -> None:
    spec, steps = _spec(work, plan, result, place), work.run.steps

    def on_step(row: StepRow) -> None:
        loss = "–" if row.loss is None else f"{row.loss:.4f}"
        display.advance(row.step + 1, steps, f"step {row.step + 1}, loss {loss}, {row.step_seconds * 1e3:.0f} ms")

    record = launch(spec, place.machine, hang_seconds=HANG_SECONDS, on_step=on_step, hosts=place.hosts)
    display.finish(_sentence(record), failed=_failed([record]))


def _take_turns(work: TakeTurns, plan: Plan, result: ResultFolder, place: Workplace, display: Display) -> None:
    specs = [_spec(train, plan, result, place) for train in work.runs]
    steps, made = sum(train.run.steps for train in work.runs), 0

    def on_step(which: int, row: StepRow) -> None:
        nonlocal made
        made += 1
        label = work.runs[which].run.cell.label
        display.advance(made, steps, f"{label}, step {row.step + 1}, {row.step_seconds * 1e3:.0f} ms")

    records = launch_in_turns(specs, place.machine, hang_seconds=HANG_SECONDS, on_step=on_step)
    sentences = "".join(f"\n            {record.run.cell.label}: {_sentence(record)}" for record in records)
    display.finish(sentences, failed=_failed(records))


def _failed(records: Sequence[RunRecord]) -> int:
    return sum(record.outcome is not Outcome.OK for record in records)


def _spec(work: Train, plan: Plan, result: ResultFolder, place: Workplace) -> RunSpec:
    run = work.run
    return RunSpec(
        run=run,
        attempt=work.attempt,
        seed=run.training_seed,
        folder=str((result.run(run.key) / f"attempt-{work.attempt}").resolve()),
        data_folder=_data_folder(plan, place.store),
        data_cache=str(place.store.decoded_frames.resolve()),
        resume_from=work.resume_from,
        trace=place.profile and run.kind is RunKind.TIMING and run.repeat == 0,
    )


def _data_folder(plan: Plan, store: Store) -> str | None:
    if plan.data.source == "expert":
        return str(demonstrations_folder(plan, store).resolve())
    return plan.data.path


def spoken_attempt(result: ResultFolder, run: PlannedRun) -> str:
    """How the latest attempt at a run ended, in a line."""
    attempts = result.attempts(run.key)
    file = attempts[-1] / RUN_FILE if attempts else None
    ended = file is not None and file.exists()
    return f"{run.key}: {_sentence(read_record(file, RunRecord)) if file and ended else 'has not ended'}"


def _sentence(record: RunRecord) -> str:
    if record.outcome is not Outcome.OK or record.speed is None:
        reason = record.failure.reason if record.failure else "no figures"
        return f"[red]{record.outcome}[/red]: {reason}"
    speed = record.speed
    loss = "" if record.final_loss is None else f", final loss {record.final_loss:.4f}"
    return (
        f"{speed.median_step_seconds * 1e3:.0f} ms a step, {speed.samples_per_second:.1f} samples/s, "
        f"{speed.steadiness}{loss}"
    )


def conclude(result: ResultFolder, place: Workplace) -> Comparison:
    """Compares what is recorded and writes `comparison.json` and `report.md`."""
    plan = read_plan(result)
    past = read_history(place.store, plan.suite, episodes=False)
    return _compared(result, place, plan, read_results(result, plan), past)


def conclude_dossier(result: ResultFolder, place: Workplace) -> Dossier:
    """As `conclude`, with everything that plots and page need."""
    plan = read_plan(result)
    results = read_results(result, plan)
    past = read_history(place.store, plan.suite, episodes=False)
    return gather(_compared(result, place, plan, results, past), plan, results, result, past)


def _compared(result: ResultFolder, place: Workplace, plan: Plan, results: Results, past: History) -> Comparison:
    baseline = read_baseline(place.baselines.file(plan.hardware_key, plan.suite))
    comparison = compare(plan, results, baseline, load_published())
    comparison = comparison.model_copy(update={"trends": trends(past, plan, baseline, results.result_id)})
    write_record(result.comparison_file, comparison)
    write_atomically(result.report_file, render(comparison, plan, results))
    return comparison


def write_page(result: ResultFolder, dossier: Dossier) -> Path:
    """`report.html`: the report for people who click. Draws plots, so it takes a second or two."""
    from harness.report.html import render_html

    write_atomically(result.page_file, render_html(dossier))
    return result.page_file


def read_baseline(file: Path) -> Baseline | None:
    return read_record(file, Baseline) if file.exists() else None


def accept_baseline(
    result: ResultFolder, baselines: BaselineFolder, reason: str, cells: list[str] | None, extend: bool
) -> tuple[Path, Baseline]:
    """Makes a result the reference for its suite and hardware; cells not named keep their old values.

    `extend` adds its figures to those that are there.
    """
    plan = read_plan(result)
    return accept_results(plan, read_results(result, plan), baselines, reason, cells, extend)


def accept_results(
    plan: Plan, results: Results, baselines: BaselineFolder, reason: str, cells: list[str] | None, extend: bool
) -> tuple[Path, Baseline]:
    """As `accept_baseline`. Writers of one machine's baselines wait for each other; none is lost."""
    acceptance = Acceptance(
        result=results.result_id,
        at=_now(),
        by=getpass.getuser(),
        reason=reason,
        command=results.command,
        commit=git_commit(),
    )
    file = baselines.file(plan.hardware_key, plan.suite)
    with baselines.locked(plan.hardware_key):
        baseline = accept(plan, results, read_baseline(file), acceptance, only=cells, extend=extend)
        write_record(file, baseline)
    return file, baseline


def carry_baseline(
    result: ResultFolder, baselines: BaselineFolder, reason: str, carried: Baseline
) -> tuple[Path, Baseline]:
    """Makes the old side of a bridged result the reference on its machine."""
    plan = read_plan(result)
    results = read_results(result, plan)
    acceptance = _acceptance(results, reason)
    file = baselines.file(plan.hardware_key, plan.suite)
    with baselines.locked(plan.hardware_key):
        baseline = carry(carried, plan, results, read_baseline(file), acceptance)
        write_record(file, baseline)
    return file, baseline


def _acceptance(results: Results, reason: str) -> Acceptance:
    return Acceptance(
        result=results.result_id,
        at=_now(),
        by=getpass.getuser(),
        reason=reason,
        command=results.command,
        commit=git_commit(),
    )


def expire_baseline(file: Path, baselines: BaselineFolder, reason: str, cells: list[str] | None) -> Baseline:
    """Ends the use of a baseline, or of some of its entries, until somebody accepts them again."""
    with baselines.locked(file.parent.name):
        baseline = expire(
            read_record(file, Baseline), Expiry(at=_now(), by=getpass.getuser(), reason=reason), only=cells
        )
        write_record(file, baseline)
    return baseline


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
