from __future__ import annotations

from comparison_records import a_plan, a_run, a_speed

from harness.compare.baseline import Acceptance, accept
from harness.compare.results import Results
from harness.history import History, past_run
from harness.plan import Plan
from harness.report.trends import trends as section
from harness.trends import trends

PLAN: Plan = a_plan(repeats=2)


def past(levels: list[float], steadiness: str = "STEADY") -> History:
    history = History()
    for night, level in enumerate(levels):
        for repeat in range(2):
            run = a_run("zero3", repeat=repeat)
            speed = a_speed(level * (1 + 0.002 * ((night * 7 + repeat * 3) % 5)), run.run, steadiness)
            history.runs.append(past_run("fsdp2", f"202601{night:02d}", run.model_copy(update={"speed": speed})))
    return history


def test_pinned_and_rolling_stand_side_by_side() -> None:
    act = Acceptance(result="r", at="2026-01-01T00:00:00+00:00", by="x", reason="y", command="z")
    baseline = accept(PLAN, Results("r", "", [a_run("zero3", repeat=r) for r in range(2)]), None, act)
    found = {t.metric: t for t in trends(past([0.3] * 8 + [0.36] * 8), PLAN, baseline, "20260115")}
    step = found["step_seconds"]
    assert step.results == 16 and step.pinned is not None and step.pinned > 1.15
    assert step.rolling is not None and step.rolling.n == 10
    assert [change.result for change in step.changes] == ["20260108"]
    text = section(list(found.values()))
    assert "from 20260108 on" in text and "vs rolling" in text


def test_later_results_and_unsteady_runs_are_not_looked_at() -> None:
    found = trends(past([0.3] * 8 + [0.36] * 8), PLAN, None, "20260107")
    assert {t.results for t in found} == {8}
    assert all(not t.changes for t in found)
    assert "step_seconds" not in {t.metric for t in trends(past([0.3] * 4, "UNSTEADY"), PLAN, None, "20260103")}


def test_one_result_is_no_history() -> None:
    assert trends(past([0.3]), PLAN, None, "20260100") == []
    assert section([]) == ""
