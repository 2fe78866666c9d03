"""Did it get worse since the baseline? A verdict per figure, at a stated false-alarm rate over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.compare.baseline import (
    KINDS,
    ArmBaseline,
    Baseline,
    CellBaseline,
    gated_metrics,
    gated_values,
    learnt_arms,
    simulation_versions,
    task_counts,
)
from harness.compare.metrics import Metric, smallest_effect
from harness.compare.results import Results, ended_well, unique
from harness.compare.verdict import Judgement, Verdict
from harness.libero.records import ArmRecord
from harness.plan import Plan, RunKind
from harness.statistics.families import holm
from harness.statistics.interval import Interval
from harness.statistics.power import detectable_rate_difference, detectable_shift
from harness.statistics.prediction import predict
from harness.statistics.proportions import fisher_p, newcombe
from harness.suite import Gate


@dataclass(frozen=True)
class _Test:
    """A judgement still without its verdict: that depends on the whole family of tests."""

    draft: Judgement
    p_worse: float
    p_better: float
    matters: bool
    """The change is as large as the smallest that matters."""
    blind: bool
    """The smallest detectable change is larger than that."""


def compare_with(baseline: Baseline | None, plan: Plan, results: Results) -> list[Judgement]:
    """Judges every gated metric of every cell, and every arm's success, against a baseline.

    REGRESSED and IMPROVED need a Holm-adjusted p value below `gate.false_alarm_rate` over all tests made here and
    a change that matters. PASS needs a test that could have found such a change; otherwise INCONCLUSIVE.
    """
    if baseline is None:
        return _no_baseline(plan, results)
    if baseline.hardware_key != plan.hardware_key:
        reason = f"the baseline is of {baseline.hardware_key}, this machine is {plan.hardware_key}"
        return [_plain(plan.suite, "all", Verdict.INCOMPARABLE, reason)]
    settled: list[Judgement] = []
    tests: list[_Test] = []
    family = _family_size(plan, results)
    for label in results.labels():
        for kind in RunKind:
            runs = ended_well(results.of(label, kind))
            if runs:
                _sort(_judge_cell(baseline.cell(label, kind), label, kind, results, plan.gate, family), settled, tests)
    for record in learnt_arms(results):
        _sort(_judge_arm(baseline.arm(record.arm), record, results, plan.gate, family), settled, tests)
    judged = settled + _decide(tests, plan.gate)
    return _stale(judged, baseline, results) if _age_days(baseline, results) > baseline.expires_days else judged


def _sort(found: list[Judgement | _Test], settled: list[Judgement], tests: list[_Test]) -> None:
    settled += [item for item in found if isinstance(item, Judgement)]
    tests += [item for item in found if isinstance(item, _Test)]


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


def _judge_cell(
    reference: CellBaseline | None, label: str, kind: RunKind, results: Results, gate: Gate, family: int
) -> list[Judgement | _Test]:
    runs = ended_well(results.of(label, kind))
    if reference is None:
        return [_plain(label, str(kind), Verdict.NO_BASELINE, "the baseline does not hold this cell")]
    unlike = differing_fields(
        reference.cell.model_dump(exclude={"label"}), runs[0].run.cell.model_dump(exclude={"label"})
    )
    if unlike:
        return [_plain(label, str(kind), Verdict.INCOMPARABLE, f"the workload differs: {', '.join(unlike)}")]
    found: list[Judgement | _Test] = []
    for metric in gated_metrics(kind):
        old, new = reference.values.get(metric.name, []), gated_values(metric, runs)
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
            found.append(_test_metric(metric, label, old, new, gate, family))
    return found


def _test_metric(metric: Metric, label: str, old: list[float], new: list[float], gate: Gate, family: int) -> _Test:
    alpha = gate.false_alarm_rate / family
    prediction = predict(old, new, alpha)
    centre = sum(old) / len(old)
    needed = 1 + max(smallest_effect(metric, gate), metric.floor / centre)
    detectable = needed if metric.exact else detectable_shift(len(old), len(new), prediction.log_sd or 0.0, alpha)
    low, high = prediction.low, prediction.high
    draft = Judgement(
        question="baseline",
        subject=label,
        metric=metric.name,
        verdict=Verdict.INCONCLUSIVE,
        value=sum(new) / len(new),
        reference=centre,
        effect=Interval(
            estimate=prediction.ratio,
            low=None if low is None else prediction.ratio * low,
            high=None if high is None else prediction.ratio * high,
            confidence=1 - 2 * alpha,
            n=len(new),
        ),
        effect_kind="ratio",
        smallest_detectable=detectable,
        false_alarm_rate=gate.false_alarm_rate,
        n=len(new),
        reason=f"{len(new)} processes against {len(old)}",
    )
    larger, smaller = prediction.p_larger, prediction.p_smaller
    if metric.exact:
        larger, smaller = float(prediction.ratio <= 1), float(prediction.ratio >= 1)
    worse_first = (larger, smaller) if metric.better == "lower" else (smaller, larger)
    return _Test(
        draft=draft,
        p_worse=worse_first[0],
        p_better=worse_first[1],
        matters=max(prediction.ratio, 1 / prediction.ratio) >= needed,
        blind=detectable is None or detectable > needed,
    )


def _judge_arm(
    reference: ArmBaseline | None, record: ArmRecord, results: Results, gate: Gate, family: int
) -> list[Judgement | _Test]:
    if reference is None:
        return [_plain(record.arm, "success_rate", Verdict.NO_BASELINE, "the baseline does not hold this arm")]
    unlike = differing_fields(reference.protocol.model_dump(), record.protocol.model_dump())
    unlike += differing_fields(reference.versions, simulation_versions(record))
    if unlike:
        return [_plain(record.arm, "success_rate", Verdict.INCOMPARABLE, f"the protocol differs: {', '.join(unlike)}")]
    old = {(c.task_suite, c.task): c for c in reference.counts}
    new = {(c.task_suite, c.task): c for c in task_counts(record.arm, results.episodes)}
    common = [key for key in new if key in old]
    if not common:
        return [_plain(record.arm, "success_rate", Verdict.INCOMPARABLE, "no task is evaluated in both")]
    return [
        _test_success(
            record.arm,
            task_suite,
            (
                sum(old[k].successes for k in common if k[0] == task_suite),
                sum(old[k].valid for k in common if k[0] == task_suite),
            ),
            (
                sum(new[k].successes for k in common if k[0] == task_suite),
                sum(new[k].valid for k in common if k[0] == task_suite),
            ),
            gate,
            family,
        )
        for task_suite in unique(key[0] for key in common)
    ]


def _test_success(
    arm: str, task_suite: str, old: tuple[int, int], new: tuple[int, int], gate: Gate, family: int
) -> _Test:
    difference = newcombe(old, new, gate.confidence)
    old_rate = old[0] / old[1]
    detectable = detectable_rate_difference(old_rate, old[1], new[1], gate.false_alarm_rate / family)
    draft = Judgement(
        question="baseline",
        subject=arm,
        metric=f"success_rate {task_suite}",
        verdict=Verdict.INCONCLUSIVE,
        value=new[0] / new[1],
        reference=old_rate,
        effect=difference,
        effect_kind="difference",
        smallest_detectable=detectable,
        false_alarm_rate=gate.false_alarm_rate,
        n=new[1],
        reason=f"{new[1]} episodes against {old[1]}",
    )
    return _Test(
        draft=draft,
        p_worse=fisher_p(old, new, worse=True),
        p_better=fisher_p(old, new, worse=False),
        matters=abs(difference.estimate) >= gate.smallest_effect.success_rate,
        blind=detectable is None or detectable > gate.smallest_effect.success_rate,
    )


def _decide(tests: list[_Test], gate: Gate) -> list[Judgement]:
    worse, better = holm([t.p_worse for t in tests]), holm([t.p_better for t in tests])
    judged = []
    for test, p_worse, p_better in zip(tests, worse, better, strict=True):
        if p_worse < gate.false_alarm_rate and test.matters:
            verdict, words = Verdict.REGRESSED, "worse than chance allows, and by as much as matters"
        elif p_better < gate.false_alarm_rate and test.matters:
            verdict, words = Verdict.IMPROVED, "better than chance allows: accept it as the baseline, or explain it"
        elif test.blind:
            verdict, words = Verdict.INCONCLUSIVE, "the smallest detectable change is larger than the one that matters"
        else:
            verdict, words = Verdict.PASS, "no change that matters, and one would have been seen"
        judged.append(test.draft.model_copy(update={"verdict": verdict, "reason": f"{test.draft.reason}: {words}"}))
    return judged


def _age_days(baseline: Baseline, results: Results) -> float:
    """Days from the latest acceptance to the latest run; the harness has no clock here."""
    started = [_moment(run.started_at) for run in results.runs]
    if not started:
        return 0.0
    return (max(started) - _moment(baseline.accepted[-1].at)).total_seconds() / 86400


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _stale(judged: list[Judgement], baseline: Baseline, results: Results) -> list[Judgement]:
    reason = f"the baseline is {_age_days(baseline, results):.0f} days old and expires after {baseline.expires_days}"
    return [
        item.model_copy(update={"verdict": Verdict.STALE, "reason": f"{reason}; it would be {item.verdict}"})
        for item in judged
    ]


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
