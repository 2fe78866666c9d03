"""The arithmetic of the scripts in `benchmarks/`; what they measure, they measure when they are run."""

from __future__ import annotations

import json
import math
import random
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bf16_regimes  # noqa: E402
import gpu  # noqa: E402
import growth  # noqa: E402
import libero_memory  # noqa: E402
import overhead  # noqa: E402
import overhead_rank  # noqa: E402
import turns_aa  # noqa: E402


def notes(seconds: list[float]) -> list[tuple[float, float]]:
    """Of one rank: turns of so many seconds, the first of which is the warm-up; CPU time is half of it."""
    return [(9.0, 4.5), *((each, each / 2) for each in seconds)]


def group(factor: float, own: float = 0.0, launcher: float = 0.0) -> overhead.Group:
    """Two ranks; the slower one takes `factor` times as long in the harness's turns as in the bare ones."""
    machine = [1.0, 1.0, 3.0, 3.0, 2.0, 2.0]
    return overhead.Group(
        backend="ddp",
        ours=[notes([factor * each for each in machine]), notes([0.5 * each for each in machine])],
        bare=[notes([0.9 * each for each in machine]), notes(machine)],
        own_cpu_seconds=own,
        launcher_cpu_seconds=launcher,
    )


def test_overhead_is_the_ratio_of_the_slowest_ranks_over_fresh_groups() -> None:
    found = overhead.cost([group(1.01, own=0.1, launcher=0.04), group(1.03, own=0.1, launcher=0.04)], turn_steps=4)
    assert found.wall.estimate == pytest.approx(math.sqrt(1.01 * 1.03))
    assert found.cpu.estimate == pytest.approx(math.sqrt(1.01 * 1.03))
    assert found.wall.high is not None
    assert found.wall.high > 1.03  # two groups say little, however many turns they took
    assert found.step_seconds == 0.5
    steps = 0.5 * 12 * (1.01 + 1.03 + 2 * 0.5)  # CPU seconds of both ranks of both groups, warm-up left out
    assert found.own_cpu_share == pytest.approx((2 * 0.1 + 2 * 0.04) / steps)


def test_a_drift_of_the_machine_weighs_on_both_loops_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    class Turns(overhead_rank.Turns):
        def _make_a_bare_turn(self) -> None:
            order.append("B")
            self.bare.notes.append((1.0, 1.0))

    monkeypatch.setattr(sys, "argv", ["rank", str(tmp_path / "spec.json")])
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(overhead_rank, "keep_collections_short", lambda: None)
    turns = Turns()
    turns.steps = SimpleNamespace(world=SimpleNamespace(synchronise=lambda: None))
    for _ in range(1 + 8):  # the warm-up, and eight turns
        turns.take()
        order.append("H")
    turns.end()
    assert "".join(order) == "HB" + "HBBH" * 4
    noted = json.loads((tmp_path / "rank-0.turns.json").read_text())
    assert len(noted["harness"]) == len(noted["bare"]) == 9


def test_a_broken_bound_is_named() -> None:
    slow = overhead.cost([group(1.05, own=10.0)] * 3, turn_steps=4)
    assert slow.broken() == ["wall ratio's upper end above 1.03", "own CPU above 1%"]
    short = overhead.cost([group(1.05)] * 3, turn_steps=40)
    assert short.broken() == [], "steps under 100 ms have no bound on wall time"


def test_regimes_differ_by_their_largest_departure() -> None:
    other = bf16_regimes.Row("bfloat16", losses=[2.0, 1.5, 1.0], norms=[4.0, 2.0, 1.0])
    reference = bf16_regimes.Row("float32", losses=[2.125, 1.0, 1.0], norms=[4.0, 4.0, 1.0])
    assert bf16_regimes.drift(other, reference) == bf16_regimes.Drift(0.125, 0.5, 0.5)


def test_a_regime_is_held_against_one_that_is_measured_before_it() -> None:
    names = list(bf16_regimes.ROWS)
    assert all(names.index(reference) <= names.index(name) for name, (reference, _) in bf16_regimes.ROWS.items())


def test_memory_grows_from_the_second_fifth_on() -> None:
    filling_up, flat = [10] * 5 + [100] * 20, [100] * 25
    assert libero_memory.growth(filling_up) == libero_memory.growth(flat) == 0
    assert libero_memory.growth([100 + episode for episode in range(25)]) == pytest.approx(122 / 107 - 1)


def test_like_pairs_are_called_unlike_as_often_as_promised() -> None:
    generator = random.Random(1)
    pairs = [generator.gauss(0, 0.05) for _ in range(24)]
    for repeats in (2, 3, 5, 8):
        width, share = turns_aa.resample(pairs, repeats)
        assert 0.02 < share < 0.08
        assert width > 1
    assert turns_aa.resample(pairs, 8)[0] < turns_aa.resample(pairs, 3)[0]


def test_a_report_of_no_pairs_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    turns_aa.report([])
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_the_tables_of_like_pairs_say_what_a_comparison_of_them_would(capsys: pytest.CaptureFixture[str]) -> None:
    generator = random.Random(2)
    plain = {"load": "loaded", "median_log_ratio": 0.1, "cpu_log_ratio": 0.0, "steady": True, "seconds": 30.0}
    pairs = [
        turns_aa.Pair(order=order, log_ratio=generator.gauss(0, spread), **plain | {"median_log_ratio": 0.01 * number})
        for order, spread in (("turns", 0.02), ("abba", 0.2))
        for number in range(20)
    ]
    turns_aa.report(pairs)
    table = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "loaded" in line]
    every = {row[0]: row for row in rows if row[2] == "all 20"}
    width = {order: float(row[4].removeprefix("×")) for order, row in every.items()}
    assert set(every) == {"turns", "abba"} and 1 < width["turns"] < width["abba"]
    low, high = turns_aa.all_pairs([0.1, 0.12, 0.11])
    assert 1 < low < math.exp(0.11) < high


def test_a_budget_knows_when_one_more_would_be_too_much() -> None:
    now = [0.0]
    budget = gpu.Budget(100.0, clock=lambda: now[0])

    def work() -> None:
        now[0] += 40.0

    budget.timed(work)
    assert budget.suffices()
    budget.timed(work)
    assert not budget.suffices()


def test_what_is_missing_is_a_dash_and_has_its_reason() -> None:
    figures = {"forward_seconds": 0.07, "backward_seconds": 0.14, "optimizer_seconds": 0.03, "joules_per_sample": 12.3}
    rows = [
        gpu.Row("fsdp2", micro_batch=8, step_seconds=0.25, mfu=0.4, **figures),
        gpu.Row("zero3", note="no time left"),
    ]
    answer = gpu.Answer({"gpus": ["NVIDIA H200"], "cpu": "x"}, "pi0 full", 1, "bf16", rows=rows)
    first, second = gpu.table(answer).splitlines()[-2:]
    assert first == "| fsdp2 | 8 | 250 | 70/140/30 | – | 40.0% | 12.3 | – | – | – | – | – |  |"
    assert second == "| zero3 | – | – | –/–/– | – | – | – | – | – | – | – | – | no time left |"
    assert json.loads(json.dumps(asdict(answer)))["rows"][1]["step_seconds"] is None


def test_growth_beyond_linear_is_named_and_a_fixed_cost_is_none() -> None:
    costs = {
        "fixed": {10: growth.Cost(1.0, 100), 40: growth.Cost(1.1, 100), 160: growth.Cost(1.5, 120)},
        "squared": {10: growth.Cost(0.1, 100), 40: growth.Cost(1.6, 100), 160: growth.Cost(25.6, 900)},
    }
    assert growth.broken(costs) == ["squared: CPU seconds", "squared: memory"]
    assert growth.growth(growth.Cost(1.0, 1), growth.Cost(8.0, 1), 4.0) == 2.0
    last = growth.table(costs).splitlines()[-1]
    assert last == "| squared | 160 | 16,000 | 25.60 | 4.00× | 0 |"


def test_a_large_plan_is_as_large_as_it_says() -> None:
    growth.plan(Path(), 400)
