"""Turns: the order, the baton between real sockets, and real process groups that share a machine."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import native_runs as native
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.plan import PlannedRun, RunKind
from harness.store import read_record
from harness.train.launch import launch_in_turns, read_steps
from harness.train.records import Outcome, RunRecord, RunSpec, StepRow
from harness.train.turns import Baton, Turns, turn_of, turn_order


@given(groups=st.integers(1, 8), rounds=st.integers(1, 10))
def test_every_group_stands_in_the_same_mean_place(groups: int, rounds: int) -> None:
    order = list(islice(turn_order(groups), 2 * rounds * groups))
    for start in range(0, len(order), groups):
        assert sorted(order[start : start + groups]) == list(range(groups))
    places = [sum(place for place, group in enumerate(order) if group == g) for g in range(groups)]
    assert len(set(places)) == 1


def a_run(steps: int = 13, warmup_steps: int = 3, turn_steps: int | None = 4) -> PlannedRun:
    return PlannedRun(
        cell=native.cell("ddp"), kind=RunKind.TIMING, repeat=0, training_seed=3, steps=steps, warmup_steps=warmup_steps,
        block="b", turn_steps=turn_steps,
    )  # fmt: skip


def test_the_warm_up_is_one_turn() -> None:
    assert [turn_of(step, a_run()) for step in range(13)] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    assert turn_of(100, a_run(turn_steps=None)) == 0


class Stage:
    """Groups of threads instead of ranks: who was on, and whether ever two groups at once."""

    def __init__(self, ranks: list[int], turns_each: list[int]) -> None:
        self.turns = Turns(ranks)
        self.log: list[int] = []
        self.on: set[int] = set()
        self.clashes = 0
        self._lock = threading.Lock()
        self._left = Counter(dict(enumerate(ranks)))
        self.gone: set[int] = set()
        self.threads = [
            threading.Thread(target=self._rank, args=(group, rank, turns_each[group]), daemon=True)
            for group, count in enumerate(ranks)
            for rank in range(count)
        ]

    def _rank(self, group: int, rank: int, turns: int) -> None:
        baton = Baton(self.turns.address(group))
        for _ in range(turns):
            baton.take()
            with self._lock:
                self.on.add(group)
                self.clashes += len(self.on) > 1
                if rank == 0:
                    self.log.append(group)
            time.sleep(0.001)
            with self._lock:
                self.on.discard(group)
        with self._lock:
            self._left[group] -= 1

    def play(self) -> None:
        for thread in self.threads:
            thread.start()
        deadline = time.monotonic() + 20
        while any(thread.is_alive() for thread in self.threads) and time.monotonic() < deadline:
            self.turns.serve(0.01)
            for group, left in self._left.items():
                if left == 0 and group not in self.gone:
                    self.gone.add(group)
                    self.turns.leave(group)
        assert not any(thread.is_alive() for thread in self.threads), "somebody waits for ever"
        self.turns.close()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), min_size=1, max_size=4))
def test_one_group_runs_at_a_time_and_all_come_to_their_end(groups: list[tuple[int, int]]) -> None:
    stage = Stage([ranks for ranks, _ in groups], [turns for _, turns in groups])
    stage.play()
    assert stage.clashes == 0
    assert Counter(stage.log) == {group: turns for group, (_, turns) in enumerate(groups)}


def test_groups_go_there_and_back() -> None:
    stage = Stage([1, 2, 1], [4, 4, 4])
    stage.play()
    assert stage.log == [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]


def test_a_rank_learns_that_its_launcher_is_gone() -> None:
    turns = Turns([1, 1])
    baton, raised = Baton(turns.address(0)), threading.Event()

    def wait() -> None:
        with pytest.raises(ConnectionError, match="launcher"):
            baton.take()
        raised.set()

    thread = threading.Thread(target=wait)
    thread.start()
    turns.serve(0.05)
    turns.serve(0.05)
    turns.close()
    thread.join(5)
    assert raised.is_set()


def block(folder: Path, ranks: tuple[int, ...] = (2, 1), steps: int = 13) -> list[RunSpec]:
    """A group each with so many ranks; every rank takes seconds to start."""
    specs = []
    for place, count in enumerate(ranks):
        stub = native.cell("ddp", model="stub", label=f"stub-{place}", ranks=count)
        plain = native.spec(folder / str(place), stub)
        specs.append(plain.model_copy(update={"run": a_run(steps).model_copy(update={"cell": plain.run.cell})}))
    return specs


def run_block(specs: list[RunSpec], on_step=lambda _place, _row: None, hang_seconds: float = 60.0) -> list[RunRecord]:
    return launch_in_turns(specs, native.FINGERPRINT, hang_seconds=hang_seconds, on_step=on_step, worker="sabotage")


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> tuple[list[RunRecord], list[tuple[int, StepRow]], float]:
    """Two groups in turns, each step 0.2 s of sleep: records, steps as they came, wall seconds."""
    steps: list[tuple[int, StepRow]] = []
    with pytest.MonkeyPatch.context() as patch:
        native.plant(patch, "slow 0 0")
        started = time.monotonic()
        records = run_block(block(tmp_path_factory.mktemp("turns")), lambda place, row: steps.append((place, row)))
    return records, steps, time.monotonic() - started


def test_two_process_groups_take_turns(played) -> None:
    records, steps, wall = played
    assert [record.outcome for record in records] == [Outcome.OK, Outcome.OK]
    assert [row.turn for place, row in steps if place == 0] == [0] * 3 + [1] * 4 + [2] * 4 + [3] * 2
    seen = [0, 0]
    for place, row in steps:
        seen[place] = row.turn
        assert abs(seen[0] - seen[1]) <= 1, "one group ran ahead"
    assert wall > 2 * 13 * 0.2, "the groups ran side by side"
    assert not native.children()


def test_records_say_who_kept_company(played) -> None:
    records, _, _ = played
    first, second = (record.in_turns for record in records)
    assert first == second
    assert first.runs == [record.run.key for record in records]
    assert all(len(record.speed.turn_step_seconds) == 3 for record in records)


def test_waiting_costs_no_processor_time(played) -> None:
    records, steps, _ = played
    assert all(record.speed.cpu_seconds_per_step < 0.1 for record in records)
    assert len(steps) == 26


@pytest.mark.full
def test_company_changes_no_figure_of_memory(played, monkeypatch, tmp_path) -> None:
    native.plant(monkeypatch, "slow 0 0")
    together = played[0][0]
    [order, _] = block(tmp_path)
    alone = native.run(
        order.model_copy(update={"run": order.run.model_copy(update={"block": None})}), worker="sabotage"
    )
    assert alone.outcome is Outcome.OK and alone.in_turns is None
    assert together.memory.shards == alone.memory.shards
    assert together.memory.peak_resident_bytes == pytest.approx(alone.memory.peak_resident_bytes, rel=0.02)


def test_a_killed_group_lets_the_others_go_on(monkeypatch, tmp_path) -> None:
    native.plant(monkeypatch, "slow 0 0")
    killed: list[int] = []

    def kill_other(place: int, row: StepRow) -> None:
        """While group 0 is in its second turn, a rank of group 1 dies that waits for its own."""
        if place == 0 and row.turn == 1 and not killed:
            torchruns = psutil.Process().children()
            ranks = [
                rank for torchrun in torchruns for rank in torchrun.children() if "1/spec.json" in rank.cmdline()[-1]
            ]
            killed.append(ranks[-1].pid)
            ranks[-1].kill()

    first, second = run_block(block(tmp_path, ranks=(1, 2)), kill_other)
    assert killed
    assert first.outcome is Outcome.OK
    assert second.outcome is Outcome.CRASHED
    assert "killed by signal 9" in second.failure.reason
    assert len(read_steps(tmp_path / "0")) == 13
    assert not native.children()


def test_interrupt_stops_all_groups(monkeypatch, tmp_path) -> None:
    native.plant(monkeypatch, "slow 0 0")
    alive: list[psutil.Process] = []

    def interrupt(place: int, row: StepRow) -> None:
        alive.extend(native.children())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_block(block(tmp_path, ranks=(1, 1), steps=1000), interrupt)
    assert len(alive) >= 4
    assert not psutil.wait_procs(alive, timeout=5)[1]
    outcomes = [read_record(tmp_path / str(place) / "run.json", RunRecord).outcome for place in (0, 1)]
    assert outcomes == [Outcome.INTERRUPTED, Outcome.INTERRUPTED]
