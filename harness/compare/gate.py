"""Did it get worse since the baseline? A verdict per figure, at a stated false-alarm rate over all of them.

Two stages. The first looks at everything; what alarms is measured again by fresh processes (fresh episodes for
success), and only what alarms twice is REGRESSED. Both stages stay in the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.compare.baseline import Baseline, CellBaseline, Entry, simulation_versions, task_counts
from harness.compare.gated import KINDS, gated_metrics, gated_values, learnt_arms, reference_runs
from harness.compare.metrics import Metric, noise_correlation
from harness.compare.questions import Answer, MetricQuestion, SuccessQuestion
from harness.compare.results import Results, ended_well, unique
from harness.compare.verdict import Alarm, Confirmation, Judgement, Verdict
from harness.libero.records import ArmRecord
from harness.plan import Plan, RunKind, model_key
from harness.statistics.families import holm
from harness.statistics.prediction import spread_for
from harness.suite import Gate
from harness.train.records import RunRecord

SAME_WORK = ("parameters", "trainable_parameters", "data_sha256", "samples_per_step", "tokens_per_sample")
"""Facts of a workload that must agree with the baseline's. Initial weights may move with torch's generators."""


@dataclass(frozen=True)
class _Test:
    """A judgement still without its verdict: that depends on the whole family of tests."""

    alarm: Alarm
    first: Answer
    second: Answer | None
    """From fresh processes alone; None where there are none."""


def compare_with(baseline: Baseline | None, plan: Plan, results: Results) -> list[Judgement]:
    """Judges every gated metric of every cell, and every arm's success, against a baseline.

    REGRESSED needs a Holm-adjusted p value below `gate.false_alarm_rate` over all tests made here, a change that
    matters, and the same alarm from fresh processes. PASS needs a test that could have found such a change;
    otherwise INCONCLUSIVE.
    """
    if baseline is None:
        return _no_baseline(plan, results)
    if baseline.hardware_key != plan.hardware_key:
        reason = f"the baseline is of {baseline.hardware_key}, this machine is {plan.hardware_key}"
        return [_plain(plan.suite, "all", Verdict.INCOMPARABLE, reason)]
    settled, tests = _examine(baseline, plan, results)
    judged = settled + _decide(tests, plan.gate) + _dropped(baseline, plan)
    return [_unless_stale(item, baseline, results) for item in judged]


def first_stage_alarms(baseline: Baseline | None, plan: Plan, results: Results) -> list[Alarm]:
    """What must be measured again by fresh processes before anything is called REGRESSED."""
    if baseline is None or baseline.hardware_key != plan.hardware_key:
        return []
    _, tests = _examine(baseline, plan, results)
    return [test.alarm for test, alarms in zip(tests, _alarming(tests, plan.gate), strict=True) if alarms]


def _examine(baseline: Baseline, plan: Plan, results: Results) -> tuple[list[Judgement], list[_Test]]:
    """What is settled without a test, and the tests."""
    family = _family_size(plan, results)
    found: list[Judgement | _Test] = []
    for label in results.labels():
        for kind in RunKind:
            runs = ended_well(results.of(label, kind))
            if runs:
                found += _cell_tests(baseline, runs, plan, results, family)
    for record in learnt_arms(results):
        found += _arm_tests(baseline, record, results, plan.gate, family)
    settled = [item for item in found if isinstance(item, Judgement)]
    return settled, [item for item in found if isinstance(item, _Test)]


def _no_baseline(plan: Plan, results: Results) -> list[Judgement]:
    reason = f"nothing is accepted yet for {plan.suite} on {plan.hardware_key}"
    kinds = {run.run.kind for run in ended_well(results.runs)}
    families = [family for family, kind in KINDS.items() if kind in kinds and _has_figures(family, results)]
    families += ["success"] if results.episodes else []
    return [_plain(plan.suite, family, Verdict.NO_BASELINE, reason) for family in families]


def _has_figures(family: str, results: Results) -> bool:
    return any(
        gated_values(metric, ended_well(results.runs))
        for metric in gated_metrics(KINDS[family])
        if metric.family == family
    )


def _family_size(plan: Plan, results: Results) -> int:
    cells = sum(len(gated_metrics(kind)) for label in results.labels() for kind in RunKind if results.of(label, kind))
    return max(1, cells + len(learnt_arms(results)) * len(unique(key.task_suite for key in plan.episodes)))


def _dropped(baseline: Baseline, plan: Plan) -> list[Judgement]:
    """A gate that no longer plans what it was made for must not turn green by it."""
    if plan.purpose != "gate":
        return []
    planned = {run.cell.label for run in plan.runs} | {arm.name for arm in plan.arms}
    held = unique(entry.subject for entry in baseline.entries)
    reason = "the baseline holds it, but this plan does not run it"
    return [_plain(name, "all", Verdict.INCONCLUSIVE, reason) for name in held if name not in planned]


# --- a cell ------------------------------------------------------------------------------------------------


def _cell_tests(
    baseline: Baseline, runs: list[RunRecord], plan: Plan, results: Results, family: int
) -> list[Judgement | _Test]:
    label, kind, gate = runs[0].run.cell.label, runs[0].run.kind, plan.gate
    reference = baseline.cell(label, kind)
    if reference is None:
        return [_plain(label, str(kind), Verdict.NO_BASELINE, "the baseline does not hold this cell")]
    if not baseline.intact(reference):
        return [_broken_seal(reference, str(kind))]
    if unlike := _unlike_work(reference, runs[0]):
        return [_plain(label, str(kind), Verdict.INCOMPARABLE, f"the workload differs: {', '.join(unlike)}")]
    again = ended_well(run for run in results.confirmation_runs if (run.run.cell.label, run.run.kind) == (label, kind))
    beside, beside_again = (
        reference_runs(label, plan.reference, side) for side in (results.runs, results.confirmation_runs)
    )
    found: list[Judgement | _Test] = []
    for metric in gated_metrics(kind):
        old, new = reference.values.get(metric.name, []), gated_values(metric, runs, beside)
        if not old and not new:
            continue
        if not new:
            unsteady = metric.family == "time"
            verdict = Verdict.UNSTEADY if unsteady else Verdict.INCONCLUSIVE
            reason = "no run had steady step times" if unsteady else "this result has no such figure"
            found.append(_plain(label, metric.name, verdict, reason))
        elif not old:
            found.append(_plain(label, metric.name, Verdict.NO_BASELINE, "the baseline does not hold this metric"))
        else:
            spread = spread_for(old, _like(baseline, reference, metric), noise_correlation(metric))
            question = MetricQuestion(label, metric, old, spread, gate)
            fresh = gated_values(metric, again, beside_again)
            found.append(
                _Test(
                    alarm=Alarm(subject=label, metric=metric.name, kind=kind),
                    first=question.ask(new, gate.false_alarm_rate / family),
                    second=question.ask(fresh, gate.false_alarm_rate) if fresh else None,
                )
            )
    return found


def _like(baseline: Baseline, reference: CellBaseline, metric: Metric) -> list[Sequence[float]]:
    """The metric's values of all cells of the same model and kind: their noise is taken to be alike."""
    return [
        cell.values[metric.name]
        for cell in baseline.cells
        if cell.kind is reference.kind
        and model_key(cell.cell.label) == model_key(reference.cell.label)
        and metric.name in cell.values
    ]


def _unlike_work(reference: CellBaseline, run: RunRecord) -> list[str]:
    names = differing_fields(reference.cell.model_dump(exclude={"label"}), run.run.cell.model_dump(exclude={"label"}))
    if reference.workload is not None and run.workload is not None:
        old, new = (w.model_dump(include=set(SAME_WORK)) for w in (reference.workload, run.workload))
        names += differing_fields(old, new)
    return names


# --- an arm ------------------------------------------------------------------------------------------------


def _arm_tests(
    baseline: Baseline, record: ArmRecord, results: Results, gate: Gate, family: int
) -> list[Judgement | _Test]:
    reference = baseline.arm(record.arm)
    if reference is None:
        return [_plain(record.arm, "success_rate", Verdict.NO_BASELINE, "the baseline does not hold this arm")]
    if not baseline.intact(reference):
        return [_broken_seal(reference, "success_rate")]
    unlike = differing_fields(reference.protocol.model_dump(), record.protocol.model_dump())
    unlike += differing_fields(simulation_versions(reference.fingerprint), simulation_versions(record.fingerprint))
    if unlike:
        return [_plain(record.arm, "success_rate", Verdict.INCOMPARABLE, f"the protocol differs: {', '.join(unlike)}")]
    new = task_counts(record.arm, results.episodes)
    again = task_counts(record.arm, results.confirmation_episodes)
    known = {(count.task_suite, count.task) for count in reference.counts}
    common = [count for count in new if (count.task_suite, count.task) in known]
    if not common:
        return [_plain(record.arm, "success_rate", Verdict.INCOMPARABLE, "no task is evaluated in both")]
    found: list[Judgement | _Test] = []
    for task_suite in unique(count.task_suite for count in common):
        question = SuccessQuestion(record.arm, task_suite, reference.counts, gate)
        found.append(
            _Test(
                alarm=Alarm(subject=record.arm, metric=question.metric, kind=None),
                first=question.ask(common, gate.false_alarm_rate / family),
                second=question.ask(again, gate.false_alarm_rate) if question.overlaps(again) else None,
            )
        )
    return found


# --- the verdicts ------------------------------------------------------------------------------------------


def _alarming(tests: list[_Test], gate: Gate) -> list[bool]:
    adjusted = holm([test.first.p_worse for test in tests])
    return [p < gate.false_alarm_rate and test.first.matters for test, p in zip(tests, adjusted, strict=True)]


def _decide(tests: list[_Test], gate: Gate) -> list[Judgement]:
    alarming = _alarming(tests, gate)
    better = holm([test.first.p_better for test in tests])
    rate = gate.false_alarm_rate / max(1, sum(alarming))
    judged = []
    for test, alarms, p_better in zip(tests, alarming, better, strict=True):
        draft = test.first.draft
        if alarms:
            judged.append(_second_stage(test, rate))
            continue
        if p_better < gate.false_alarm_rate and test.first.matters:
            verdict, words = Verdict.IMPROVED, "better than chance allows: accept it as the baseline, or explain it"
        else:
            verdict, words = _nothing_found(test.first)
        judged.append(draft.model_copy(update={"verdict": verdict, "reason": f"{draft.reason}: {words}"}))
    return judged


def _nothing_found(answer: Answer) -> tuple[Verdict, str]:
    if answer.blind:
        return Verdict.INCONCLUSIVE, "the smallest detectable change is larger than the one that matters"
    return Verdict.PASS, "no change that matters, and one would have been seen"


def _second_stage(test: _Test, rate: float) -> Judgement:
    draft, second = test.first.draft, test.second
    if second is None:
        words = "worse than chance allows, and not yet measured again by fresh processes"
        return draft.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "reason": f"{draft.reason}: {words}"})
    reproduced = second.p_worse < rate
    fresh = Confirmation(
        value=second.draft.value or 0.0,
        effect=second.draft.effect,
        n=second.draft.n,
        p_value=second.p_worse,
        reproduced=reproduced,
    )
    if reproduced:
        verdict, words = Verdict.REGRESSED, "worse than chance allows, by as much as matters, and again when repeated"
    else:
        verdict, words = _nothing_found(second)
        words = f"alarmed at first, not reproduced by {second.draft.reason}: {words}"
    return draft.model_copy(update={"verdict": verdict, "reason": f"{draft.reason}: {words}", "confirmation": fresh})


def _unless_stale(judged: Judgement, baseline: Baseline, results: Results) -> Judgement:
    """An expired or over-aged entry gives no verdict, but says what it would have been."""
    mine = [entry for entry in baseline.entries if entry.subject == judged.subject]
    if not mine:
        return judged
    ended = next((entry.expired for entry in mine if entry.expired), None)
    age = max(_age_days(entry.accepted_at, results) for entry in mine)
    if ended:
        reason = f"the baseline was ended {ended.at} by {ended.by}: {ended.reason}"
    elif age > baseline.expires_days:
        reason = f"the baseline is {age:.0f} days old and expires after {baseline.expires_days}"
    else:
        return judged
    return judged.model_copy(
        update={"verdict": Verdict.STALE, "reason": f"{reason}; it would be {judged.verdict}: {judged.reason}"}
    )


def _age_days(accepted_at: str, results: Results) -> float:
    """Days from an acceptance to the latest run; the harness has no clock here."""
    started = [_moment(run.started_at) for run in results.runs]
    return (max(started) - _moment(accepted_at)).total_seconds() / 86400 if started else 0.0


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _broken_seal(entry: Entry, metric: str) -> Judgement:
    reason = "the values in the baseline file are not the accepted ones (their seal is broken); accept them again"
    return _plain(entry.subject, metric, Verdict.INCOMPARABLE, reason)


def _plain(subject: str, metric: str, verdict: Verdict, reason: str) -> Judgement:
    return Judgement(question="baseline", subject=subject, metric=metric, verdict=verdict, reason=reason)


def differing_fields(old: Mapping[str, object], new: Mapping[str, object], prefix: str = "") -> list[str]:
    """Dotted names of the fields in which two plain values differ, with both values."""
    names: list[str] = []
    for key in unique([*old, *new]):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            names += differing_fields(a, b, f"{prefix}{key}.")
        elif a != b:
            names.append(f"{prefix}{key} {a} → {b}")
    return names
