"""The answers in plain words, for the first screen: which is faster, how sure, at which memory, is success kept."""

from __future__ import annotations

from harness.compare.comparison import Comparison
from harness.compare.success import PairedSuccess
from harness.compare.throughput import Finding, Speedup
from harness.compare.verdict import Judgement, Verdict
from harness.plan import backend_key, model_key
from harness.report.figures import again_effect, effect, measured, mib, pair, plural, points, ratio
from harness.report.verdicts import GOOD, of, peak_bytes, regressions

MOST_ANSWERS = 4
"""Pairs told in words, those whose success was evaluated first; and as many figures that got worse."""

_SHOWN = {
    Finding.FASTER: "{candidate} is faster than {reference}",
    Finding.SLOWER: "{candidate} is slower than {reference}",
    Finding.EQUAL: "{candidate} is as fast as {reference}",
    Finding.NOT_SHOWN: "no difference in speed is shown between {candidate} and {reference}",
}


def answers(comparison: Comparison) -> list[str]:
    """What got worse since the baseline; then a sentence or two per pair of cells. Inline Markdown."""
    evaluated = {(found.reference, found.candidate) for found in comparison.success_pairs}
    speedups = sorted(comparison.speedups, key=lambda s: (s.reference, s.candidate) not in evaluated)
    told = [_answer(speedup, comparison) for speedup in speedups[:MOST_ANSWERS]]
    left = len(speedups) - MOST_ANSWERS
    told += [f"{plural(left, 'more pair')} below."] if left > 0 else []
    return _worse(comparison) + told


def _worse(comparison: Comparison) -> list[str]:
    found = regressions(comparison)
    left = len(found) - MOST_ANSWERS
    return [*map(_regression, found[:MOST_ANSWERS]), *([f"**{left} more got worse**, see below."] if left > 0 else [])]


def _regression(judged: Judgement) -> str:
    """Both stages: `**pi0-fsdp2 got worse: step_seconds 1.21× [1.08–1.36] against the baseline** (119 ms …), by …`."""
    sides = measured(judged)
    second = again_effect(judged)
    again = f", and {second} when fresh ones measured it again" if second else ""
    return (
        f"**{judged.subject} got worse: {judged.metric} {effect(judged)} against the baseline**"
        f"{f' ({sides})' if sides else ''}, by {plural(judged.n or 0, _unit(judged))}{again}."
    )


def _unit(judged: Judgement) -> str:
    return "process group" if judged.effect_kind == "ratio" else "episode"


def _answer(speedup: Speedup, comparison: Comparison) -> str:
    model, candidate, reference = _names(speedup)
    subject = f"{speedup.candidate} vs {speedup.reference}"
    judged = next(judgement for judgement in of(comparison, "speed") if judgement.subject == subject)
    if speedup.speedup is None or not speedup.comparable or speedup.pairs == 0:
        return f"**{model}{candidate} against {reference}: no answer**, {judged.reason}."
    statement = _SHOWN[speedup.finding].format(candidate=candidate, reference=reference)
    interval = f"{comparison.confidence:.0%} interval" if speedup.speedup.low is not None else "no interval"
    sure = f"{interval}, {plural(speedup.pairs, 'pair')} of runs"
    loss = [f"; {words}" for words in speedup.reservations if words.startswith("loss")]
    memory, success = _memory(speedup, comparison), _success(speedup, comparison)
    return f"**{model}{statement}: {ratio(speedup.speedup)}** ({sure}){memory}{''.join(loss)}. {success}"


def _names(speedup: Speedup) -> tuple[str, str, str]:
    """`pi0: `, and the backends alone; the cells' own labels where the models differ."""
    reference, candidate = speedup.reference, speedup.candidate
    if model_key(reference) != model_key(candidate):
        return "", candidate, reference
    return f"{model_key(candidate)}: ", backend_key(candidate), backend_key(reference)


def _memory(speedup: Speedup, comparison: Comparison) -> str:
    cells = {cell.label: cell for cell in comparison.cells}
    new, old = peak_bytes(cells[speedup.candidate]), peak_bytes(cells[speedup.reference])
    return f" at {mib(new)} MiB of peak memory against {mib(old)}" if new and old else ""


def _success(speedup: Speedup, comparison: Comparison) -> str:
    """`LIBERO success is kept: +0.4 points [−1.2, +2.0].`"""
    judged = _success_judgements(speedup.reference, speedup.candidate, comparison)
    if not judged:
        return "LIBERO success is not measured."
    difference = f": {points(judged[0].effect)} points" if judged[0].effect else ""
    return f"LIBERO success {_kept(judged)}{difference}."


def success_line(found: PairedSuccess, comparison: Comparison) -> str:
    """`success pi0: fsdp2 vs zero3: is kept, +0.4 [−1.2, +2.0] pp`, for a terminal."""
    kept = _kept(_success_judgements(found.reference, found.candidate, comparison))
    return f"success {pair(found.candidate, found.reference)} {kept}: {points(found.difference)} pp"


def _success_judgements(reference: str, candidate: str, comparison: Comparison) -> list[Judgement]:
    subject = f"{candidate} vs {reference}"
    return [judgement for judgement in of(comparison, "success") if judgement.subject == subject]


def _kept(judged: list[Judgement]) -> str:
    verdicts = {judgement.verdict for judgement in judged}
    if Verdict.REGRESSED in verdicts:
        return "got worse"
    return "is kept" if verdicts and verdicts <= set(GOOD) else "is not shown to be kept"
