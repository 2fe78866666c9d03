"""LIBERO success: rates of each arm, two checkpoints on the same scenes, and the controls."""

from __future__ import annotations

from collections import Counter

from harness.compare.verdict import Evidence, Judgement, Verdict, judge_pair_of
from harness.libero.records import EpisodeRecord
from harness.plan import EpisodeKey
from harness.records import Value
from harness.statistics.interval import Interval
from harness.statistics.power import detectable_paired_difference
from harness.statistics.proportions import Pairs, mcnemar_p, noninferior, paired_difference, wilson
from harness.statistics.ratios import mean_interval
from harness.suite import CONTROLS, Evaluation, Gate, blinding_of
from harness.task_suites import TASK_SUITES, in_order

ALL = "all"
SEEDS_FOR_A_BACKEND = 3
"""Training seeds per side below which a comparison is about checkpoints, not about backends."""
EXPERT_RATE = 0.8
"""A scripted expert below this, where it covers the task, means that the simulation is not what it should be."""


class TaskSuiteRate(Value):
    """One arm in one task suite. Errors and uncovered episodes are counted and stay out of the rate."""

    task_suite: str
    successes: int
    valid: int
    errors: int
    uncovered: int
    rate: Interval | None
    """None without a valid episode."""


class ArmSuccess(Value):
    """One arm over all task suites it was run in."""

    arm: str
    rates: list[TaskSuiteRate]
    average: float | None
    """Plain mean of the four task suites' rates; None unless all four have one."""
    planned: int
    recorded: int


class PairedSuccess(Value):
    """Two learnt policies on the same scenes."""

    reference: str
    candidate: str
    task_suite: str
    """Or `all`."""
    pairs: Pairs
    unpaired: int
    """Episodes of either side without a partner: errors, other scene, other protocol, or missing."""
    difference: Interval | None
    """Candidate minus reference: Agresti and Min's interval, or Student's over seeds from 3 training seeds on."""
    p_value: float
    """Exact McNemar, two-sided."""
    training_seeds: int
    smallest_detectable: float | None


def arm_success(arm: str, episodes: list[EpisodeRecord], planned: int, confidence: float) -> ArmSuccess:
    """Counts and rates of one arm; `episodes` are this arm's alone."""
    rates = []
    for task_suite in in_order(e.key.task_suite for e in episodes):
        counts = Counter(e.outcome for e in episodes if e.key.task_suite == task_suite)
        valid = counts["success"] + counts["failure"]
        rates.append(
            TaskSuiteRate(
                task_suite=task_suite,
                successes=counts["success"],
                valid=valid,
                errors=counts["error"],
                uncovered=counts["uncovered"],
                rate=wilson(counts["success"], valid, confidence) if valid else None,
            )
        )
    known = [rate.rate.estimate for rate in rates if rate.rate is not None and rate.task_suite in TASK_SUITES]
    average = sum(known) / len(known) if len(known) == len(TASK_SUITES) else None
    return ArmSuccess(arm=arm, rates=rates, average=average, planned=planned, recorded=len(episodes))


def paired_success(
    names: tuple[str, str],
    seeds: list[tuple[list[EpisodeRecord], list[EpisodeRecord]]],
    confidence: float,
) -> list[PairedSuccess]:
    """Compares two learnt cells: over all task suites first, then in each.

    Args:
        names: reference, candidate.
        seeds: per training seed, the episodes of the reference's and of the candidate's checkpoint.
    """
    found = {e.key.task_suite for sides in seeds for side in sides for e in side}
    scopes = [ALL, *in_order(found)]
    return [_paired(names, scope, seeds, confidence) for scope in scopes if found]


def _paired(
    names: tuple[str, str],
    scope: str,
    seeds: list[tuple[list[EpisodeRecord], list[EpisodeRecord]]],
    confidence: float,
) -> PairedSuccess:
    counted = [_count(*(_within(side, scope) for side in sides)) for sides in seeds]
    per_seed = [pairs for pairs, _ in counted]
    pooled = Pairs(
        both=sum(p.both for p in per_seed),
        only_reference=sum(p.only_reference for p in per_seed),
        only_candidate=sum(p.only_candidate for p in per_seed),
        neither=sum(p.neither for p in per_seed),
    )
    full = [p for p in per_seed if p.n]
    difference: Interval | None = None
    if len(full) >= SEEDS_FOR_A_BACKEND:
        difference = mean_interval([(p.only_candidate - p.only_reference) / p.n for p in full], confidence)
    elif pooled.n:
        difference = paired_difference(pooled, confidence)
    differing = (pooled.only_candidate + pooled.only_reference) / pooled.n if pooled.n else 0.0
    return PairedSuccess(
        reference=names[0],
        candidate=names[1],
        task_suite=scope,
        pairs=pooled,
        unpaired=sum(unpaired for _, unpaired in counted),
        difference=difference,
        p_value=mcnemar_p(pooled),
        training_seeds=len(full),
        smallest_detectable=detectable_paired_difference(differing, pooled.n, (1 - confidence) / 2),
    )


def _within(episodes: list[EpisodeRecord], scope: str) -> list[EpisodeRecord]:
    return [e for e in episodes if scope in (ALL, e.key.task_suite)]


def _count(reference: list[EpisodeRecord], candidate: list[EpisodeRecord]) -> tuple[Pairs, int]:
    """Pairs by (key, protocol, scene), and how many episodes of both sides have no partner."""
    old, new = _outcomes(reference), _outcomes(candidate)
    common = old.keys() & new.keys()
    cells = Counter((old[scene], new[scene]) for scene in common)
    pairs = Pairs(
        both=cells[True, True],
        only_reference=cells[True, False],
        only_candidate=cells[False, True],
        neither=cells[False, False],
    )
    return pairs, len(reference) + len(candidate) - 2 * pairs.n


def _outcomes(episodes: list[EpisodeRecord]) -> dict[tuple[EpisodeKey, str, str], bool]:
    return {
        (e.key, e.protocol, e.scene_sha256): e.outcome == "success"
        for e in episodes
        if e.outcome in ("success", "failure") and e.scene_sha256 is not None
    }


def judge_pair(pair: PairedSuccess, gate: Gate) -> Judgement:
    """Is success kept? Shown when the difference's lower bound lies above minus the smallest effect that matters."""
    verdict, reason = _verdict(pair, gate.smallest_effect.success_rate)
    evidence = Evidence(
        effect=pair.difference,
        kind="difference",
        smallest_detectable=pair.smallest_detectable,
        false_alarm_rate=(1 - gate.confidence) / 2,
        n=pair.pairs.n,
    )
    if pair.training_seeds < SEEDS_FOR_A_BACKEND:
        reason = f"these two checkpoints: {reason}"
    return judge_pair_of("success", (pair.reference, pair.candidate), "success_rate", evidence, (verdict, reason))


def _verdict(pair: PairedSuccess, margin: float) -> tuple[Verdict, str]:
    difference = pair.difference
    if difference is None or difference.low is None or difference.high is None:
        return Verdict.INCONCLUSIVE, "no episode was run by both on the same scene"
    if difference.low > 0:
        return Verdict.IMPROVED, "more success is shown"
    if noninferior(difference, margin):
        return Verdict.PASS, f"a loss of {100 * margin:g} points or more is ruled out"
    if difference.high < 0:
        if pair.training_seeds >= SEEDS_FOR_A_BACKEND:
            return Verdict.REGRESSED, "less success is shown over the training seeds"
        needed = f"a word on backends needs {SEEDS_FOR_A_BACKEND} training seeds each"
        return Verdict.INCONCLUSIVE, f"the second succeeds less, but {needed}"
    return Verdict.INCONCLUSIVE, f"a loss of {100 * margin:g} points is not ruled out; evaluate more episodes"


def pass_mark(arm: str, evaluation: Evaluation | None) -> float | None:
    """The rate an arm must reach; None for one that is only measured."""
    if arm in CONTROLS:
        return EXPERT_RATE if arm == "expert" else None
    return evaluation.pass_mark if evaluation and blinding_of(arm) is None else None


def passes(successes: int, valid: int, left: int, mark: float) -> bool | None:
    """Whether the rate over all episodes reaches the mark, where no outcome of those left could change that.

    Curtailment: the answer is the full evaluation's own, not an estimate of it. An episode that ends in an error or
    uncovered only leaves the sum, and cannot change a sure answer either.
    """
    needed = mark * (valid + left) - 1e-9  # a mark such as 0.7 is not a binary fraction
    if successes >= needed:
        return True if valid + left else None
    return False if successes + left < needed else None


def judge_mark(arm: ArmSuccess, mark: float) -> Judgement:
    """Does a policy reach the rate it must?"""
    successes, valid = sum(r.successes for r in arm.rates), sum(r.valid for r in arm.rates)
    left = max(0, arm.planned - arm.recorded)
    sure = passes(successes, valid, left, mark)
    verdict = Verdict.INCONCLUSIVE if sure is None else Verdict.PASS if sure else Verdict.FAILED
    reached = "cannot be told yet" if sure is None else "is reached" if sure else "is not reached"
    reason = f"{mark:.0%} {reached} with {successes} of {valid}"
    if left:
        reason += f", {left} more to run" if sure is None else f", whatever the {left} that were not run would give"
    return Judgement(
        question="success", subject=arm.arm, metric="success_rate", verdict=verdict,
        value=successes / valid if valid else None, reference=mark, n=valid, reason=reason,
    )  # fmt: skip


def settled_early(arm: ArmSuccess, evaluation: Evaluation | None) -> bool:
    """Whether an arm's missing episodes are left out on purpose."""
    mark = pass_mark(arm.arm, evaluation)
    if evaluation is None or not evaluation.stop_early or mark is None:
        return False
    successes, valid = sum(r.successes for r in arm.rates), sum(r.valid for r in arm.rates)
    return passes(successes, valid, max(0, arm.planned - arm.recorded), mark) is not None


def judge_arm(arm: ArmSuccess, evaluation: Evaluation | None) -> list[Judgement]:
    """Was the arm evaluated as planned? No judgement means yes."""
    max_error_share = evaluation.max_error_share if evaluation else 0.0
    errors = sum(rate.errors for rate in arm.rates)
    found = []
    if arm.recorded and errors / arm.recorded > max_error_share:
        reason = f"{errors} of {arm.recorded} episodes ended in errors, more than {max_error_share:.0%}"
        found.append((Verdict.FAILED, reason))
    if arm.recorded < arm.planned and not settled_early(arm, evaluation):
        missing = arm.planned - arm.recorded
        found.append((Verdict.INCONCLUSIVE, f"{missing} of {arm.planned} planned episodes were not run"))
    return [
        Judgement(
            question="run", subject=arm.arm, metric="episodes", verdict=verdict, n=arm.recorded, reason=reason,
            value=float(arm.recorded), reference=float(arm.planned),
        )
        for verdict, reason in found
    ]  # fmt: skip


def judge_control(arm: ArmSuccess) -> Judgement:
    """`still` must never succeed; `expert` must succeed where it has a skill."""
    successes, valid = sum(r.successes for r in arm.rates), sum(r.valid for r in arm.rates)
    rate = successes / valid if valid else None
    if rate is None:
        verdict, reason = Verdict.INCONCLUSIVE, "the control has no valid episode"
    elif arm.arm == "still":
        good = successes == 0
        verdict = Verdict.PASS if good else Verdict.FAILED
        reason = (
            "doing nothing never succeeds" if good else "doing nothing succeeds: the scenes are not as they should be"
        )
    else:
        good = rate >= EXPERT_RATE
        verdict = Verdict.PASS if good else Verdict.FAILED
        reason = f"the scripted expert succeeds in {rate:.0%}; {EXPERT_RATE:.0%} or more is expected"
    return Judgement(
        question="control", subject=arm.arm, metric="success_rate", verdict=verdict, value=rate, n=valid,
        reference=0.0 if arm.arm == "still" else EXPERT_RATE, reason=reason,
    )  # fmt: skip
