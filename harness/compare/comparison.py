"""The comparison: every question asked of one result, answered, and judged. A pure function of records."""

from __future__ import annotations

from harness.compare.baseline import Acceptance, Baseline
from harness.compare.fairness import Audit, audit_pairs
from harness.compare.family import OverallSpeedup, overall_speedups, settle
from harness.compare.gate import compare_with
from harness.compare.parity import ParityRecord, loss_parity
from harness.compare.published import PublishedComparison, PublishedTable, compare_published
from harness.compare.results import Results, unique, with_references
from harness.compare.sharding import judge_sharding
from harness.compare.success import (
    ArmSuccess,
    PairedSuccess,
    arm_success,
    judge_arm,
    judge_control,
    judge_mark,
    judge_pair,
    paired_success,
    pass_mark,
)
from harness.compare.summary import CellSummary, summarize
from harness.compare.throughput import Speedup, judge_speedup, measure_speedup, pair_runs
from harness.compare.trend import Trend
from harness.compare.verdict import Judgement, Verdict
from harness.errors import ExitCode, worst
from harness.plan import Plan, PlannedRun, RunKind
from harness.records import Record
from harness.suite import CONTROLS, blinding_of
from harness.train.records import Outcome, RunRecord


class Comparison(Record):
    """`comparison.json`: what `report.md` is written from."""

    result: str
    suite: str
    hardware_key: str
    confidence: float
    cells: list[CellSummary]
    speedups: list[Speedup]
    """Against the suite's reference."""
    other_speedups: list[Speedup]
    """Against the other DeepSpeed cells; shown, not judged."""
    overall_speedups: list[OverallSpeedup] = []
    """Over models, where there are several."""
    audits: list[Audit]
    parity: list[ParityRecord]
    arms: list[ArmSuccess]
    success_pairs: list[PairedSuccess]
    published: list[PublishedComparison]
    baseline: Acceptance | None
    """What was last done to the baseline; None without one."""
    trends: list[Trend] = []
    """Beside the baseline and beside earlier results; a reading aid that no verdict hangs on."""
    judgements: list[Judgement]
    exit_code: ExitCode


def compare(plan: Plan, results: Results, baseline: Baseline | None, published: list[PublishedTable]) -> Comparison:
    """Answers all questions of the plan from what there is; what is missing is judged INCONCLUSIVE, not left out."""
    labels = unique(run.cell.label for run in plan.runs)
    confidence = plan.gate.confidence
    audits, parity = _audits(plan, results), _parity(plan, results)
    arms = [_arm(name, plan, results) for name in unique(arm.name for arm in plan.arms)]
    pairs = _success_pairs(plan, results)
    judged_pairs = [judge_pair(pair, plan.gate) for pair in pairs if pair.task_suite == "all"]
    speedups = _speedups(plan, results, audits)
    speedups = [_reserved(speedup, parity, judged_pairs) for speedup in settle(speedups, plan.gate)]
    judgements = [
        *_judge_runs(plan, results),
        *(judged for label in labels if (judged := judge_sharding(label, results.of(label)))),
        *(_judge_audit(audit) for audit in audits),
        *(_judge_parity(record) for record in parity),
        *(judge_speedup(speedup, plan.gate) for speedup in speedups),
        *(judged for arm in arms for judged in judge_arm(arm, plan.evaluation)),
        *_marks(arms, plan),
        *(judge_control(arm) for arm in arms if arm.arm in CONTROLS and arm.recorded),
        *judged_pairs,
        *compare_with(baseline, plan, results),
    ]
    return Comparison(
        result=results.result_id,
        suite=plan.suite,
        hardware_key=plan.hardware_key,
        confidence=confidence,
        cells=[summarize(label, _planned(plan, label), results) for label in labels],
        speedups=speedups,
        other_speedups=settle(_other_speedups(plan, results, audits), plan.gate),
        overall_speedups=overall_speedups(speedups, confidence),
        audits=audits,
        parity=parity,
        arms=arms,
        success_pairs=pairs,
        published=[compare_published(table, confidence) for table in published],
        baseline=baseline.history[-1] if baseline else None,
        judgements=judgements,
        exit_code=worst(judgement.verdict.exit_code for judgement in judgements),
    )


def _planned(plan: Plan, label: str) -> list[PlannedRun]:
    return [run for run in plan.runs if run.cell.label == label]


def _with_references(plan: Plan, kind: RunKind) -> dict[str, list[str]]:
    """Reference label → other labels. Learning runs need not include the suite's reference; then the first is it."""
    labels = unique(run.cell.label for run in plan.runs if run.kind is kind)
    found = with_references(labels, plan.reference)
    return found or (with_references(labels, None) if kind is RunKind.LEARNING else {})


def _run_pairs(results: Results, kind: RunKind, reference: str, candidate: str) -> list[tuple[RunRecord, RunRecord]]:
    return pair_runs(results.of(reference, kind), results.of(candidate, kind))


def _audits(plan: Plan, results: Results) -> list[Audit]:
    """One audit per pair of cells, over their timing and learning runs."""
    found: dict[tuple[str, str], list[tuple[RunRecord, RunRecord]]] = {}
    for kind in RunKind:
        for reference, others in _with_references(plan, kind).items():
            for candidate in others:
                pairs = _run_pairs(results, kind, reference, candidate)
                found.setdefault((reference, candidate), []).extend(pairs)
    return [audit_pairs(reference, candidate, pairs) for (reference, candidate), pairs in found.items()]


def _parity(plan: Plan, results: Results) -> list[ParityRecord]:
    """Loss curves of the first pair of timing runs, and of every pair of learning runs."""
    found = []
    for kind in RunKind:
        for reference, others in _with_references(plan, kind).items():
            for candidate in others:
                pairs = _run_pairs(results, kind, reference, candidate)
                for a, b in pairs if kind is RunKind.LEARNING else pairs[:1]:
                    found.append(
                        loss_parity(
                            results.steps.get(a.run.key, []),
                            results.steps.get(b.run.key, []),
                            a.run.cell.precision,
                            reference,
                            candidate,
                            "learning" if kind is RunKind.LEARNING else "timing",
                        )
                    )
    return found


def _speedups(plan: Plan, results: Results, audits: list[Audit]) -> list[Speedup]:
    fair = {(audit.reference, audit.candidate): audit.fair for audit in audits}
    return [
        measure_speedup(
            reference,
            candidate,
            _run_pairs(results, RunKind.TIMING, reference, candidate),
            fair.get((reference, candidate), False),
            plan.gate,
        )
        for reference, others in _with_references(plan, RunKind.TIMING).items()
        for candidate in others
    ]


def _other_speedups(plan: Plan, results: Results, audits: list[Audit]) -> list[Speedup]:
    """Cells of other backends against the DeepSpeed cells that are not the reference."""
    fair = {(audit.reference, audit.candidate): audit.fair for audit in audits}
    backends = {run.cell.label: run.cell.backend.backend for run in plan.runs}
    return [
        measure_speedup(
            second,
            candidate,
            _run_pairs(results, RunKind.TIMING, second, candidate),
            fair.get((reference, second), False) and fair.get((reference, candidate), False),
            plan.gate,
        )
        for reference, others in _with_references(plan, RunKind.TIMING).items()
        for second in others
        for candidate in others
        if backends[second] == "deepspeed" and backends[candidate] != "deepspeed"
    ]


def _reserved(speedup: Speedup, parity: list[ParityRecord], success: list[Judgement]) -> Speedup:
    """Speed is credited only with parity: says what is not shown."""
    mine = [p for p in parity if (p.reference, p.candidate) == (speedup.reference, speedup.candidate)]
    reservations = []
    if not mine:
        reservations.append("loss parity not measured")
    elif not all(record.holds for record in mine):
        reservations.append("loss parity not shown")
    subject = f"{speedup.candidate} vs {speedup.reference}"
    judged = [j.verdict for j in success if j.subject == subject]
    if not judged:
        reservations.append("LIBERO success not measured")
    elif any(verdict not in (Verdict.PASS, Verdict.IMPROVED) for verdict in judged):
        reservations.append("LIBERO success not shown to be kept")
    return speedup.model_copy(update={"reservations": reservations})


def _arm(name: str, plan: Plan, results: Results) -> ArmSuccess:
    mine = [episode for episode in results.episodes if episode.arm == name]
    return arm_success(name, mine, len(plan.episodes), plan.gate.confidence)


def _success_pairs(plan: Plan, results: Results) -> list[PairedSuccess]:
    runs = {run.key: run for run in plan.runs}
    learnt: dict[str, dict[int, str]] = {}
    for arm in plan.arms:
        if arm.run_key in runs and blinding_of(arm.name) is None:
            run = runs[arm.run_key]
            learnt.setdefault(run.cell.label, {})[run.training_seed] = arm.name
    pairs = []
    for reference, others in _with_references(plan, RunKind.LEARNING).items():
        for candidate in others:
            old, new = learnt.get(reference, {}), learnt.get(candidate, {})
            seeds = [
                tuple([e for e in results.episodes if e.arm == side[seed]] for side in (old, new))
                for seed in old
                if seed in new
            ]
            pairs += paired_success(
                (reference, candidate), [(sides[0], sides[1]) for sides in seeds], plan.gate.confidence
            )
    return pairs


def _marks(arms: list[ArmSuccess], plan: Plan) -> list[Judgement]:
    """Controls have a judgement of their own."""
    marks = {arm.arm: pass_mark(arm.arm, plan.evaluation) for arm in arms if arm.arm not in CONTROLS and arm.recorded}
    return [judge_mark(arm, mark) for arm in arms if (mark := marks.get(arm.arm)) is not None]


def _judge_runs(plan: Plan, results: Results) -> list[Judgement]:
    """A planned run that has no figures, and why. Unsupported ones were planned as such and spoil nothing."""
    records = {record.run.key: record for record in results.runs}
    found = []
    for run in plan.runs:
        record = records.get(run.key)
        outcome = record.outcome if record else Outcome.INTERRUPTED
        if outcome in (Outcome.OK, Outcome.UNSUPPORTED):
            continue
        failed = outcome is not Outcome.INTERRUPTED
        why = record.failure.reason if record and record.failure else "has not ended"
        found.append(
            Judgement(
                question="run",
                subject=run.key,
                metric="outcome",
                verdict=Verdict.FAILED if failed else Verdict.INCONCLUSIVE,
                n=1 if record else 0,
                reason=f"{outcome}: {why}" if record else "not run yet",
            )
        )
    return found


def _judge_audit(audit: Audit) -> Judgement:
    if audit.audited_pairs == 0:
        verdict, reason = Verdict.INCONCLUSIVE, "no pair of runs ended well; nothing was audited"
    elif audit.fair:
        verdict, reason = Verdict.PASS, "alike in everything but the backend"
    else:
        names = ", ".join(d.name for d in audit.differences if d.blocking)
        verdict, reason = Verdict.INCOMPARABLE, f"they differ in: {names}"
    return Judgement(
        question="fairness",
        subject=f"{audit.candidate} vs {audit.reference}",
        metric="workload",
        verdict=verdict,
        n=audit.audited_pairs,
        reason=reason,
    )


def _judge_parity(record: ParityRecord) -> Judgement:
    return Judgement(
        question="parity",
        subject=f"{record.candidate} vs {record.reference}",
        metric=f"loss ({record.kind})",
        verdict=Verdict.PASS if record.holds else Verdict.INCOMPARABLE,
        value=record.max_difference,
        n=record.compared_steps,
        reason=record.reason,
    )
