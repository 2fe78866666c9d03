"""Sections on what stands behind the figures: baseline, failures, command, configuration, machine."""

from __future__ import annotations

from harness.compare.comparison import Comparison
from harness.compare.gate import differing_fields
from harness.compare.results import Results, unique
from harness.compare.verdict import Judgement, Verdict
from harness.machine import Fingerprint
from harness.plan import Plan, RunKind
from harness.report.figures import MISSING, alarm_rate, bare_effect, detectable, mib
from harness.report.table import Table, bullet, paragraph
from harness.report.verdicts import of
from harness.train.records import Outcome, RunRecord

TRACEBACK_LINES = 8
UNTESTED = (Verdict.NO_BASELINE, Verdict.INCOMPARABLE, Verdict.UNSTEADY)


def baseline(comparison: Comparison, plan: Plan) -> str:
    """Verdicts against the accepted values, or how to accept some."""
    parts = ["## Against the baseline"]
    judged = of(comparison, "baseline")
    accepted = comparison.baseline
    if accepted is None:
        families = ", ".join(judgement.metric for judgement in judged) or "anything"
        parts.append(
            paragraph(
                f"`NO_BASELINE` for {families}: nothing is accepted yet for {plan.suite} on {plan.hardware_key}. To "
                "make this result the reference:"
            )
        )
        parts.append(f'```\nharness baseline accept {comparison.result} --reason "why"\n```')
        return "\n\n".join(parts)
    by = paragraph(f"Accepted {accepted.at} by {accepted.by} from {accepted.result}: {accepted.reason}")
    return "\n\n".join([*parts, by, baseline_table(judged).text()])


def baseline_table(judged: list[Judgement]) -> Table:
    """Every metric of every cell, and every arm's success, against the accepted values."""
    alarms = next((alarm_rate(j) for j in judged if j.false_alarm_rate is not None), MISSING)
    table = Table(
        ["Subject", "Metric", "Verdict", "Change", "Detectable", "n"],
        reading="Change: new over accepted values with its prediction interval; rates in percentage points (pp) with "
        "Newcombe's. Detectable: the smallest change seen with 90% probability; PASS needs it below the change that "
        f"matters. False alarms: {alarms} for this whole table. n: processes or episodes.",
        spare=("n", "Detectable"),
    )
    for judgement in judged:
        changed = judgement.verdict in (Verdict.REGRESSED, Verdict.IMPROVED)
        table.add(
            judgement.subject,
            judgement.metric.removeprefix("success_rate "),
            judgement.verdict,
            f"**{bare_effect(judgement)}**" if changed else bare_effect(judgement),
            detectable(judgement),
            str(judgement.n) if judgement.n else MISSING,
        )
        if judgement.verdict in UNTESTED:
            table.notes.append(f"{judgement.subject}, {judgement.metric}: {judgement.reason}.")
    return table


def failures(results: Results) -> str:
    """Every run that did not end well, in its own words."""
    bad = [run for run in results.runs if run.outcome is not Outcome.OK]
    return "\n\n".join(["## Failures", *(_failure(run) for run in bad)]) if bad else ""


def left_out(results: Results) -> str:
    """Damaged demonstrations that `data.skip_damaged` kept out of the training."""
    workloads = [run.workload for run in results.runs if run.workload]
    episodes = unique(episode for workload in workloads for episode in workload.damaged_episodes)
    if not episodes:
        return ""
    lines = "\n".join(bullet(episode) for episode in episodes)
    return "\n\n".join(["## Left out", paragraph(f"{len(episodes)} damaged episodes (`skip_damaged`):"), lines])


def _failure(run: RunRecord) -> str:
    failure = run.failure
    where = "" if failure is None or failure.rank is None else f", rank {failure.rank}"
    code = "" if failure is None or failure.exit_code is None else f", exit code {failure.exit_code}"
    why = failure.reason if failure else "no reason was recorded"
    head = bullet(f"{run.run.key}, attempt {run.attempt}: {run.outcome}{where}{code}: {why}")
    if failure is None or not failure.traceback:
        return head
    last = failure.traceback.rstrip().splitlines()[-TRACEBACK_LINES:]
    return "\n".join([head, "", "  ```", *(f"  {line}" for line in last), "  ```"])


def command(plan: Plan, results: Results) -> str:
    """How to get this again."""
    runs = len(plan.runs)
    facts = f"Result {results.result_id}; suite {plan.suite}; seed {plan.seed}; {runs} runs, {len(plan.arms)} arms."
    planted = unique(f"{r.cell.label} ({r.planted.kind} {r.planted.amount:g})" for r in plan.runs if r.planted)
    if planted:
        facts += f" A fault was planted in {', '.join(planted)}: its figures are no measurement, and no reference."
    return f"## Command\n\n```\n{results.command or MISSING}\n```\n\n{paragraph(facts)}"


def configuration(plan: Plan) -> str:
    """What all cells share, and what each has of its own."""
    parts = ["## Configuration"]
    for kind in RunKind:
        runs = [run for run in plan.runs if run.kind is kind]
        if not runs:
            continue
        first = runs[0].cell.model_dump(mode="json", exclude={"label", "backend"})
        lines = [f"{kind} runs, {runs[0].steps} steps ({runs[0].warmup_steps} of warm-up): {_flat(first)}."]
        for label in unique(run.cell.label for run in runs):
            cell = next(run.cell for run in runs if run.cell.label == label)
            own = differing_fields(first, cell.model_dump(mode="json", exclude={"label", "backend"}))
            changed = f"; and {', '.join(own)}" if own else ""
            lines.append(f"{label}: {_flat(cell.backend.model_dump(mode='json'))}{changed}.")
        parts.append("\n".join(bullet(line) for line in lines))
    if plan.evaluation:
        parts.append(bullet(f"evaluation: {_flat(plan.evaluation.model_dump(mode='json', exclude={'scopes'}))}."))
    return "\n\n".join(parts)


def _flat(values: dict[str, object]) -> str:
    shown = []
    for name, value in values.items():
        inner = f"({_flat(value)})" if isinstance(value, dict) else value
        shown.append(f"{name} {inner if inner is not None else 'unset'}")
    return ", ".join(shown)


def machine(results: Results) -> str:
    """Where it was measured: as the latest record says, and whether all say the same."""
    prints = [run.fingerprint for run in results.runs] + [arm.fingerprint for arm in results.arms]
    lines = _machine(prints[-1]) if prints else ["No record was made yet."]
    unlike = unique(name for found in prints for name in differing_fields(found.versions, prints[-1].versions))
    if unlike:
        lines.append(f"Not all records were made with the same software: {', '.join(unlike)}.")
    return "## Machine\n\n" + "\n".join(bullet(line) for line in lines)


def _machine(found: Fingerprint) -> list[str]:
    gpus = ", ".join(found.gpus) or "no GPU"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(found.versions.items()))
    return [
        f"{found.hardware_key}: {found.cpu}, {found.cores} cores, {mib(found.memory_bytes)} MiB, {gpus}.",
        f"Linux {found.kernel}, Python {found.python}.",
        f"{versions}.",
    ]
