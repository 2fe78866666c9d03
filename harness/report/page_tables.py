"""Tables that only the page has: one row per run, per episode, per earlier result, and what their makers differ in."""

from __future__ import annotations

from itertools import pairwise

from harness.compare.comparison import Comparison
from harness.compare.results import unique
from harness.history import PastRun
from harness.machine import Fingerprint
from harness.report.dossier import Dossier
from harness.report.figures import MISSING, detectable, mib, milliseconds, number, pair, plural, points, speedup_cell
from harness.report.plots.history import levels
from harness.report.table import Table
from harness.report.verdicts import of, peak_bytes


def answers_table(comparison: Comparison) -> Table:
    """The four questions of a reader in a hurry, pair by pair: faster, how sure, at which memory, success kept."""
    table = Table(
        ["Pair", "Times faster", "Verdict", "Would have seen", "Peak MiB", "LIBERO success", "Credited"],
        reading=f"Times faster: the reference's step time over the other's, with its {comparison.confidence:.0%} "
        "interval; bold where a difference is shown, [–] without an interval. Would have seen: the smallest ratio the "
        "test finds with 90% probability. Peak MiB: the other's against the reference's, named after vs. LIBERO "
        "success: difference on the same scenes in percentage points.",
    )
    cells = {cell.label: cell for cell in comparison.cells}
    success = {(p.reference, p.candidate): p for p in comparison.success_pairs if p.task_suite == "all"}
    judged = {judgement.subject: judgement for judgement in of(comparison, "speed")}
    for speedup in comparison.speedups:
        judgement = judged[f"{speedup.candidate} vs {speedup.reference}"]
        scenes = success.get((speedup.reference, speedup.candidate))
        new, old = peak_bytes(cells[speedup.candidate]), peak_bytes(cells[speedup.reference])
        table.add(
            pair(speedup.candidate, speedup.reference),
            speedup_cell(speedup),
            judgement.verdict,
            detectable(judgement),
            f"{mib(new)} vs {mib(old)}",
            points(scenes.difference) if scenes else "not measured",
            f"no: {', '.join(speedup.reservations)}" if speedup.reservations else "yes",
        )
    return table


def runs_table(dossier: Dossier) -> Table:
    """Every run that was started, in the plan's order."""
    table = Table(
        ["Run", "Outcome", "Step ms", "Samples/s", "Steadiness", "Peak MiB", "Final loss", "Wall s", "Started"],
        reading="One row per fresh process group, its latest attempt. A run that did not end well has no figures. "
        "Choose a run for its configuration, what was really in force, its steps and the end of its log.",
    )
    for run in dossier.results.runs:
        memory = run.memory
        peak = None if memory is None else memory.peak_allocated_bytes or memory.peak_resident_bytes
        table.add(
            run.run.key,
            run.outcome,
            milliseconds(run.speed.median_step_seconds if run.speed else None),
            number(run.speed.samples_per_second if run.speed else None),
            run.speed.steadiness if run.speed else MISSING,
            mib(peak),
            number(run.final_loss),
            number(run.wall_seconds),
            run.started_at[:16].replace("T", " "),
        )
    return table


def episodes_table(dossier: Dossier) -> Table:
    """Every episode of every arm."""
    table = Table(
        ["Episode", "Arm", "Outcome", "Steps", "Wall s", "Tries", "Recorded", "Reason"],
        reading="Episode: task suite, task, initial state, seed. An error is no failure and is in no rate. Recorded: a "
        "contact sheet or clip that lies beside the report; any episode can be recorded later, exactly as it was.",
    )
    for episode in dossier.results.episodes:
        key = episode.key
        media = dossier.media.get((episode.arm, key))
        table.add(
            f"{key.task_suite} {key.task}, state {key.initial_state}, seed {key.seed}",
            episode.arm,
            episode.outcome,
            str(episode.steps),
            number(episode.wall_seconds),
            str(episode.tries),
            MISSING if media is None else ("picture" if media.is_picture else "clip"),
            episode.reason or MISSING,
        )
    return table


def history_table(dossier: Dossier) -> Table:
    """Every stored result of the suite, newest first, with each cell's level."""
    past = dossier.history
    steps = levels(past, "step_seconds")
    table = Table(
        ["Result", "Hardware", "Processes", "Not OK", *(f"{cell} ms" for cell in steps), "Verdicts"],
        reading="ms: geometric mean of the steady runs' median step times. Verdicts: of the whole result, as concluded "
        "then, worst first.",
    )
    runs: dict[str, list[PastRun]] = {}
    for run in past.runs:
        runs.setdefault(run.result, []).append(run)
    verdicts: dict[str, list[str]] = {}
    for verdict in past.verdicts:
        verdicts.setdefault(verdict.result, []).append(verdict.verdict)
    for result in reversed(past.results):
        table.add(
            result,
            ", ".join(unique(run.hardware_key for run in runs[result])),
            str(len(runs[result])),
            str(sum(run.outcome != "OK" for run in runs[result])),
            *(milliseconds(found.get(result)) for found in steps.values()),
            _worst_first(verdicts.get(result, [])),
        )
    table.notes += [f"{result} is left out: {why}" for result, why in past.unreadable.items()]
    return table


_ORDER = ("REGRESSED", "FAILED", "INCOMPARABLE", "UNSTEADY", "STALE", "INCONCLUSIVE", "NO_BASELINE", "IMPROVED", "PASS")


def _worst_first(verdicts: list[str]) -> str:
    known = sorted(set(verdicts), key=lambda v: _ORDER.index(v) if v in _ORDER else -1)
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in known) or MISSING


def fingerprints_table(dossier: Dossier) -> Table:
    """What the makers of this result's records differ in, and what has changed since the result before."""
    table = Table(
        ["What", "Before", "After", "Between"],
        reading="Machine and software of every run and arm of this result, in their order, and of the result before. "
        "Anything here can move a number.",
    )
    made = [(run.run.key, run.fingerprint) for run in dossier.results.runs]
    made += [(arm.arm, arm.fingerprint) for arm in dossier.results.arms]
    for (old_name, old), (new_name, new) in pairwise(made):
        _add_differences(table, _plain(old), _plain(new), f"{old_name}, {new_name}")
    _since_before(dossier, table)
    if not table.rows:
        table.notes.append(f"Nothing differs between {plural(len(made), 'record')}.")
    return table


def _add_differences(table: Table, old: dict[str, str], new: dict[str, str], between: str) -> None:
    for name in unique([*old, *new]):
        if old.get(name) != new.get(name):
            table.add(name, old.get(name, MISSING), new.get(name, MISSING), between)


def _since_before(dossier: Dossier, table: Table) -> None:
    results = dossier.history.results
    here = dossier.results.result_id
    if here not in results or results.index(here) == 0:
        return
    before = results[results.index(here) - 1]
    last = {run.result: {"hardware key": run.hardware_key, **run.versions} for run in dossier.history.runs}
    _add_differences(table, last[before], last[here], f"{before}, this result")


def _plain(found: Fingerprint) -> dict[str, str]:
    return {
        "hardware key": found.hardware_key,
        "host": found.hostname,
        "kernel": found.kernel,
        "python": found.python,
        **found.versions,
    }
