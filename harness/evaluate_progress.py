"""An evaluation under way: each arm's rate so far with its interval, and arms that need not or cannot go on."""

from __future__ import annotations

from collections import Counter

from harness.compare.success import pass_mark, passes
from harness.libero.records import EpisodeRecord
from harness.plan import EpisodeKey
from harness.suite import Evaluation
from harness.work import FEW_ARMS, Evaluate


class EvaluationProgress:
    """Counts episodes as they end.

    Args:
        work: what is to be played.
        earlier: episodes on record; they count in the rates, unless they are to be played again.
        evaluation: so many errors of an arm, in this command, end its evaluation for now; and so may certainty.
        confidence: of the intervals.
    """

    def __init__(self, work: Evaluate, earlier: list[EpisodeRecord], evaluation: Evaluation, confidence: float) -> None:
        self._evaluation, self._confidence = evaluation, confidence
        self._left = {part.arm.name: len(part.episodes) for part in work.arms}
        again = {(part.arm.name, key) for part in work.arms for key in part.episodes}
        latest: dict[tuple[str, EpisodeKey], str] = {(e.arm, e.key): e.outcome for e in earlier}
        self._counts: dict[str, Counter[str]] = {part.arm.name: Counter() for part in work.arms}
        for (arm, key), outcome in latest.items():
            if arm in self._counts and (arm, key) not in again:
                self._counts[arm][outcome] += 1
        self._errors: Counter[str] = Counter()
        self._ended_for: dict[str, str] = {}
        self.done = 0
        """Episodes that have ended in this command."""
        for arm in self._counts:
            self._settle(arm)

    @property
    def ended(self) -> frozenset[str]:
        """Arms of which nothing more is to be played."""
        return frozenset(self._ended_for)

    def take(self, record: EpisodeRecord) -> frozenset[str]:
        """Counts an episode. Returns the names of arms that are to be ended."""
        self.done += 1
        self._counts[record.arm][record.outcome] += 1
        self._left[record.arm] -= 1
        self._errors[record.arm] += record.outcome == "error"
        most = self._evaluation.max_errors
        if record.arm not in self._ended_for and self._errors[record.arm] >= most and self._left[record.arm]:
            self._ended_for[record.arm] = f"ended after {most} errors, the last: {record.reason}"
        self._settle(record.arm)
        return self.ended

    def _settle(self, arm: str) -> None:
        mark = pass_mark(arm, self._evaluation)
        if not self._evaluation.stop_early or mark is None or not self._left[arm] or arm in self._ended_for:
            return
        counts = self._counts[arm]
        sure = passes(counts["success"], counts["success"] + counts["failure"], self._left[arm], mark)
        if sure is not None:
            word = "is reached" if sure else "is out of reach"
            self._ended_for[arm] = f"ended early, {self._left[arm]} episodes saved: {mark:.0%} {word}"

    def spoken(self) -> str:
        """For each arm that has begun, successes of valid episodes, the rate, and what is not in it; with its interval
        where there are few arms."""
        begun = [arm for arm, counts in self._counts.items() if counts.total() or arm in self._ended_for]
        parts = [f"{arm} {self._rate(arm, with_interval=len(begun) <= FEW_ARMS)}" for arm in begun]
        to_come = len(self._counts) - len(begun)
        return "; ".join([*parts, f"{to_come} arms to come"] if begun and to_come else parts)

    def _rate(self, arm: str, with_interval: bool) -> str:
        from harness.statistics.proportions import wilson

        counts = self._counts[arm]
        valid = counts["success"] + counts["failure"]
        parts = [f"{counts['success']}/{valid}"]
        if valid:
            rate = wilson(counts["success"], valid, self._confidence)
            parts[0] += f", {rate.estimate:.0%}" + (f" ({rate.low:.0%} to {rate.high:.0%})" if with_interval else "")
        if errors := counts["error"]:
            parts.append(f"{errors} error{'s' * (errors > 1)}")
        if counts["uncovered"]:
            parts.append(f"{counts['uncovered']} uncovered")
        if arm in self._ended_for:
            parts.append(self._ended_for[arm])
        return ", ".join(parts)
