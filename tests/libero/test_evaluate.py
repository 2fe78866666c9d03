"""Evaluations of a plan over stub simulators: what is kept, taken up again, ended, refused."""

import numpy as np
import pytest
from rich.console import Console
from stub_simulators import ThreadExecutor

import harness.evaluate
from harness.display import Display
from harness.errors import HarnessError, MachineFault
from harness.evaluate import evaluate_arms
from harness.libero.probe import Check
from harness.libero.records import ArmRecord, EpisodeRecord
from harness.machine import fingerprint
from harness.plan import Plan, PlannedArm
from harness.planning import planned_episodes
from harness.policies.base import PolicyFault
from harness.reading import read_progress
from harness.store import ResultFolder, read_lines, read_record
from harness.suite import Evaluation, Gate, Scope
from harness.work import Evaluate, next_work


class Server:
    """A policy that refuses some initial states, for as long as it is told to."""

    def __init__(self, refused=()):
        self.refused, self.looks, self.closed = set(refused), [], False

    def act(self, looks):
        self.looks += looks
        if any(look.key.initial_state in self.refused for look in looks):
            raise PolicyFault("no connection")
        return [np.zeros((8, 7)) for _ in looks]

    def ended(self, key, success):
        pass

    def close(self):
        self.closed = True


def plan(states="0-9", arms=("server", "still"), **settings):
    scope = Scope(task_suite="libero_object", tasks=[0], initial_states=states)
    evaluation = Evaluation(scopes=[scope], workers=1, **settings)
    return Plan(
        suite="evaluate",
        purpose="bench",
        seed=7,
        hardware_key="cpu",
        runs=[],
        unsupported=[],
        reference=None,
        arms=[PlannedArm(name=name, url="ws://x" if name.startswith("server") else None) for name in arms],
        episodes=planned_episodes(evaluation, 7),
        evaluation=evaluation,
        gate=Gate(),
    )


@pytest.fixture
def result(tmp_path):
    return ResultFolder(tmp_path)


@pytest.fixture
def evaluate(result, monkeypatch):
    """Does what is left of a plan once; returns the lines shown."""
    monkeypatch.setattr(harness.evaluate, "_executor", lambda _: ThreadExecutor())

    def go(made, server):
        monkeypatch.setattr(harness.evaluate, "_seeing", lambda arm, _: server if arm.url else None)
        work = next_work(made, read_progress(result, made, False))
        assert isinstance(work, Evaluate)
        console = Console(record=True, width=400)
        with Display(console, 1) as display:
            display.start([work])
            evaluate_arms(work, made, result, fingerprint(), display)
        return console.export_text()

    return go


def records(result, arm):
    return read_lines(result.episodes_file(arm), EpisodeRecord)


def left(result, made):
    work = next_work(made, read_progress(result, made, False))
    return {part.arm.name: len(part.episodes) for part in work.arms} if isinstance(work, Evaluate) else {}


def test_all_arms_are_played_recorded_and_told_with_their_intervals(result, evaluate):
    server = Server()
    shown = evaluate(plan(), server)
    assert {record.key.initial_state for record in records(result, "server")} == set(range(10))
    assert "server 5/10, 50% (24% to 76%)" in shown
    assert "8 actions a chunk; the same look is answered alike" in shown
    assert read_record(result.arm("still") / "protocol.json", ArmRecord).gl_renderer == "stub"
    assert server.closed
    assert left(result, plan()) == {}


def test_errors_are_no_outcomes_and_are_tried_again_by_the_next_command(result, evaluate):
    made = plan(arms=("server",))
    shown = evaluate(made, Server(refused={1, 2}))
    assert "server 4/8, 50% (22% to 78%), 2 errors" in shown
    assert left(result, made) == {"server": 2}
    again = Server()
    shown = evaluate(made, again)
    assert {look.key.initial_state for look in again.looks[2:]} == {1, 2}
    assert "server 5/10, 50%" in shown
    assert "errors" not in shown
    assert left(result, made) == {}


def test_too_many_errors_end_an_arm_and_no_other(result, evaluate):
    made = plan(max_errors=3)
    shown = evaluate(made, Server(refused=set(range(1, 10))))
    assert [record.outcome for record in records(result, "server")] == ["failure", "error", "error", "error"]
    assert "ended after 3 errors, the last: policy: no connection" in shown
    assert len(records(result, "still")) == 10
    assert left(result, made) == {"server": 9}


def test_a_policy_that_does_not_answer_stops_it_before_anything_is_run(result, evaluate):
    with pytest.raises(HarnessError, match="nothing was run: no connection"):
        evaluate(plan(), Server(refused={0}))
    assert records(result, "still") == []


def test_protocols_are_never_mixed(result, evaluate):
    evaluate(plan(states="0-1"), Server())
    with pytest.raises(HarnessError, match=r"under protocol micro .*never mixed"):
        evaluate(plan(states="0-3", replan_steps=4), Server())
    assert len(records(result, "server")) == 2


@pytest.mark.parametrize(("mark", "played", "word"), [(0.4, 8, "is reached"), (0.9, 3, "is out of reach")])
def test_certainty_ends_an_arm_early_and_stays(result, evaluate, mark, played, word):
    made = plan(arms=("server",), pass_mark=mark, stop_early=True)
    shown = evaluate(made, Server())
    assert len(records(result, "server")) == played
    assert f"ended early, {10 - played} episodes saved: {mark:.0%} {word}" in shown
    assert left(result, made) == {"server": 10 - played}
    server = Server()
    evaluate(made, server)  # the same command again has nothing to play, and does not even connect
    assert server.looks == []
    assert len(records(result, "server")) == played


def test_a_blinded_arm_is_shown_less_than_the_same_policy_beside_it(result, evaluate):
    seeing, blind, misled = Server(), Server(), Server()
    evaluate(plan(arms=("server",)), seeing)
    evaluate(plan(arms=("server:no-images",)), blind)
    evaluate(plan(arms=("server:wrong-instruction",)), misled)
    assert {int(image.max()) for look in blind.looks for image in look.images.values()} == {128}
    assert {look.prompt for look in blind.looks[1:]} <= {look.prompt for look in seeing.looks}
    assert not {look.prompt for look in misled.looks} & {look.prompt for look in seeing.looks[1:]}
    assert len(records(result, "server:no-images")) == len(records(result, "server")) == 10


def test_a_scene_is_probed_before_a_long_evaluation_alone(result, evaluate, monkeypatch):
    asked = []

    def probe(ok):
        def check():
            asked.append(ok)
            return [Check(name="settling", ok=ok, detail="bowl 6.2 cm off", mend=None if ok else "pip install mujoco")]

        return check

    long = plan()
    monkeypatch.setattr(harness.evaluate, "check_scene", probe(False))
    monkeypatch.setattr(harness.evaluate, "PROBED_EPISODES", 20)
    with pytest.raises(MachineFault, match=r"bowl 6\.2 cm off: pip install mujoco"):
        evaluate(long, Server())
    monkeypatch.setattr(harness.evaluate, "check_scene", probe(True))
    assert "settling: bowl 6.2 cm off" in evaluate(long, Server())
    evaluate(plan(states="20-28"), Server())
    assert asked == [False, True]
