from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness.frontier as subject
from harness.frontier import find_frontier, largest_fitting
from harness.machine import fingerprint
from harness.plan import Cell
from harness.train.records import Outcome


@given(largest=st.integers(0, 5000), limit=st.integers(1, 4096))
def test_the_bisection_finds_the_edge_without_asking_twice(largest: int, limit: int) -> None:
    asked: list[int] = []

    def fits(number: int) -> bool:
        asked.append(number)
        assert 1 <= number <= limit
        return number <= largest

    assert largest_fitting(fits, limit) == (min(largest, limit), largest < limit)
    assert len(asked) == len(set(asked)) <= 2 * math.log2(limit) + 2
    power, _ = largest_fitting(lambda number: number <= largest, limit, powers_only=True)
    assert power <= min(largest, limit) < 2 * power or power == largest == 0 or 2 * power > limit


def cell(**settings: object) -> Cell:
    plain = {
        "label": "pi0-ddp", "model": "pi0", "size": "tiny", "backend": {"backend": "ddp"},
        "data": {"source": "synthetic"},
    }  # fmt: skip
    return Cell.model_validate(plain | settings)


def test_a_crash_is_no_frontier(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Crash:
        run = type("Run", (), {"cell": cell(micro_batch=1)})
        outcome, memory = Outcome.CRASHED, None
        failure = type("Failure", (), {"reason": "rank 0: ValueError", "peak_bytes": None})

    monkeypatch.setattr(subject, "launch", lambda *_, **__: Crash)
    found = find_frontier(cell(), tmp_path, fingerprint(), limit=8)
    assert found.largest_micro_batch is None
    assert found.reason == "micro-batch 1 ended CRASHED: rank 0: ValueError"
    assert len(found.tries) == 1


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_real_frontier_lies_between_a_fit_and_an_out_of_memory(tmp_path: Path) -> None:
    """Under so small an address space the edge is a few samples away; asked again, nothing is run again."""
    budget = 2**28
    found = find_frontier(cell(), tmp_path, fingerprint(), limit=4096, address_space_bytes=budget)
    largest = found.largest_micro_batch
    assert largest is not None and found.bounded
    outcomes = {tried.micro_batch: tried.outcome for tried in found.tries}
    assert outcomes[largest] is Outcome.OK and outcomes[largest + 1] is Outcome.OOM
    again = find_frontier(cell(), tmp_path, fingerprint(), limit=4096, address_space_bytes=budget)
    assert again == found
