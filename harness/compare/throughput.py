"""Which backend is faster, and how sure are we: log ratios of runs paired by repeat."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from enum import StrEnum

from harness.compare.metrics import METRICS
from harness.compare.results import ended_well
from harness.compare.verdict import Evidence, Judgement, Verdict, judge_pair_of
from harness.records import Value
from harness.statistics.interval import Interval
from harness.statistics.logscale import ratio_of
from harness.statistics.power import smallest_detectable_log_ratio
from harness.statistics.ratios import difference_p, equivalence_p, log_ratios, paired_ratio
from harness.suite import Gate
from harness.train.meter import paired_steadiness
from harness.train.records import RunRecord

STEADY = "STEADY"


class Finding(StrEnum):
    """What the pairs show about step time."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUAL = "equal"
    """Shown to lie within the smallest effect that matters."""
    NOT_SHOWN = "not shown"


class Speedup(Value):
    """Step time of a reference cell over that of a candidate: above 1 the candidate is faster."""

    reference: str
    candidate: str
    pairs: int
    """Steady pairs, the ones tested."""
    unsteady_pairs: int
    """Pairs one of whose runs never settled. When there are no others, they give an estimate without a test."""
    speedup: Interval | None
    """None when no pair of runs ended well."""
    finding: Finding
    smallest_detectable: float | None
    """The ratio above 1 that so many pairs with such noise find with 90 % probability."""
    comparable: bool
    p_value: float = 1.0
    """Of "equally fast", two-sided; over the family once `harness.compare.family.settle` has seen all."""
    equal_p: float = 1.0
    """Of "apart by as much as matters": two one-sided tests; likewise."""
    equal: bool = False
    """Equality within the smallest effect that matters is shown: a statement of its own beside `finding`."""
    by_repeat: dict[int, float] = {}
    """Speedup of every steady pair."""
    cpu_speedup: Interval | None = None
    """The same of process CPU time per step: a second figure, steadier on a shared CPU, blind to waiting."""
    reservations: list[str] = []
    """Why the speedup may not be credited (parity of loss, LIBERO success)."""


def pair_runs(reference: list[RunRecord], candidate: list[RunRecord]) -> list[tuple[RunRecord, RunRecord]]:
    """Runs of the same repeat that both ended well: they stood in one ABBA block."""
    partners = {run.run.repeat: run for run in ended_well(candidate)}
    return [(run, partners[run.run.repeat]) for run in ended_well(reference) if run.run.repeat in partners]


def measure_speedup(
    reference: str, candidate: str, pairs: list[tuple[RunRecord, RunRecord]], comparable: bool, gate: Gate
) -> Speedup:
    """Speedup of one cell over another from their paired timing runs; what it shows, the family says (`settle`).

    Equality is shown by two one-sided tests within the smallest effect that matters, never by the lack of a
    significant difference.
    """
    timed = [(a, b) for a, b in pairs if a.speed is not None and b.speed is not None]
    steady = [(a, b) for a, b in timed if steady_pair(a, b)]
    used = steady or timed
    speedup: Interval | None = None
    detectable, unlike, alike = None, 1.0, 1.0
    if used:
        old, new = (_figures("step_seconds", side) for side in zip(*used, strict=True))
        speedup = paired_ratio(new, old, gate.confidence)
        if steady:
            unlike, alike = difference_p(old, new), equivalence_p(old, new, gate.smallest_effect.step_seconds)
        else:
            speedup = speedup.model_copy(update={"low": None, "high": None})
        detectable = _detectable(log_ratios(old, new), gate)
    return Speedup(
        reference=reference,
        candidate=candidate,
        pairs=len(steady),
        unsteady_pairs=len(timed) - len(steady),
        speedup=speedup,
        finding=Finding.NOT_SHOWN,
        smallest_detectable=detectable,
        comparable=comparable,
        p_value=unlike,
        equal_p=alike,
        by_repeat={a.run.repeat: old / new for (a, _), old, new in zip(steady, *_both(steady), strict=True)},
        cpu_speedup=_cpu_speedup(used, gate),
    )


def judge_speedup(speedup: Speedup, gate: Gate) -> Judgement:
    """A shown difference answers the question, whichever way: slower than another backend is not a regression."""
    evidence = Evidence(
        effect=speedup.speedup,
        kind="ratio",
        smallest_detectable=speedup.smallest_detectable,
        false_alarm_rate=1 - gate.confidence,
        n=speedup.pairs,
    )
    outcome = _verdict(speedup, gate.smallest_effect.step_seconds)
    return judge_pair_of("speed", (speedup.reference, speedup.candidate), "step_seconds", evidence, outcome)


def _verdict(speedup: Speedup, margin: float) -> tuple[Verdict, str]:
    ratio = speedup.speedup
    if ratio is None:
        return Verdict.INCONCLUSIVE, "no pair of timing runs ended well"
    if not speedup.comparable:
        return Verdict.INCOMPARABLE, "the two cells differ in more than the backend; see the audit"
    if speedup.pairs == 0:
        return Verdict.UNSTEADY, "no pair of runs had steady step times"
    if speedup.finding is Finding.NOT_SHOWN:
        if ratio.low is None:
            return Verdict.INCONCLUSIVE, "one pair has no interval; raise throughput.repeats"
        why = f"no difference is shown (adjusted p {speedup.p_value:.2g})"
        return Verdict.INCONCLUSIVE, f"{why}, {_equality(speedup, margin)}; raise throughput.repeats"
    verdict, words = _ANSWERS[speedup.finding]
    if speedup.finding is not Finding.EQUAL:
        words += f" (adjusted p {speedup.p_value:.2g})"
    return verdict, f"{words}; {_equality(speedup, margin)}"


_ANSWERS = {
    Finding.FASTER: (Verdict.IMPROVED, "shown to be faster"),
    Finding.SLOWER: (Verdict.PASS, "shown to be slower: an answer, not a regression"),
    Finding.EQUAL: (Verdict.PASS, "no difference that matters"),
}


def _equality(speedup: Speedup, margin: float) -> str:
    """The statement of the two one-sided tests."""
    shown = "shown" if speedup.equal else "not shown"
    return f"equality within {margin:.0%} {shown} (adjusted p {speedup.equal_p:.2g})"


def _both(pairs: list[tuple[RunRecord, RunRecord]]) -> tuple[list[float], list[float]]:
    read = METRICS["step_seconds"].read
    figures = [(read(a), read(b)) for a, b in pairs]
    whole = [(old, new) for old, new in figures if old is not None and new is not None]
    return [old for old, _ in whole], [new for _, new in whole]


def _detectable(log_ratio_values: list[float], gate: Gate) -> float | None:
    if len(log_ratio_values) < 2:
        return None
    spread = statistics.stdev(log_ratio_values)
    found = smallest_detectable_log_ratio(len(log_ratio_values), spread, 1 - gate.confidence)
    return ratio_of(found)


def counts(run: RunRecord) -> bool:
    """Whether a run's own figures of speed are shown: it settled, or it took turns.

    Where runs take turns, what unsettled one unsettled its partners, and steadiness is asked of pairs.
    """
    return run.speed is not None and (run.in_turns is not None or run.speed.steadiness == STEADY)


def steady_pair(a: RunRecord, b: RunRecord) -> bool:
    """Runs that took turns with each other are judged by their ratio; others, each by itself."""
    if a.speed is None or b.speed is None:
        return False
    if a.in_turns is not None and b.in_turns is not None and a.in_turns.block == b.in_turns.block:
        return paired_steadiness(a.speed.turn_step_seconds, b.speed.turn_step_seconds) == STEADY
    return a.speed.steadiness == STEADY == b.speed.steadiness


def _figures(metric: str, runs: Sequence[RunRecord]) -> list[float]:
    figures = [METRICS[metric].read(run) for run in runs]
    return [figure for figure in figures if figure is not None]


def _cpu_speedup(pairs: list[tuple[RunRecord, RunRecord]], gate: Gate) -> Interval | None:
    old, new = (_figures("cpu_seconds", [pair[side] for pair in pairs]) for side in (0, 1))
    if not old or len(old) != len(new) or min(*old, *new) <= 0:
        return None
    return paired_ratio(new, old, gate.confidence)
