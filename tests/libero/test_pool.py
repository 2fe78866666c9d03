"""The pool against stub simulators (milliseconds), and once against the real one with a worker killed."""

import multiprocessing
import os
import re
import signal
import sys
import time

import numpy as np
import psutil
import pytest
from stub_simulators import BREAKS, STUMBLES, ThreadExecutor

from harness.errors import BadInput, MachineFault
from harness.libero import executors, pool
from harness.libero.pool import ArmToPlay, actions_name, evaluate, load_actions
from harness.libero.pool_worker import Finished
from harness.libero.protocol import preset
from harness.plan import EpisodeKey
from harness.policies.base import PolicyFault
from harness.policies.fixed import FixedPolicy, still

PROTOCOL = preset("micro")


def keys(*states, task=0):
    return [EpisodeKey(task_suite="libero_object", task=task, initial_state=state, seed=7) for state in states]


def failing_serve(pipe, parent, protocol):
    """A simulator process that dies or falls silent in state 13, as its seed says."""
    while (wanted := pipe.recv()) is not None:
        if wanted.key.initial_state != 13:
            pipe.send(Finished("failure", None, "0" * 64, 0, np.zeros((2, 7)), 0.01, "none", "stub"))
        elif wanted.key.seed == 1:
            os._exit(9)
        else:
            time.sleep(60)


class Recording:
    """A policy that remembers its batches and refuses the states it is told to."""

    def __init__(self, refused=()):
        self.batches, self.refused, self.over = [], refused, []

    def act(self, looks):
        self.batches.append(looks)
        if any(look.key.initial_state in self.refused for look in looks):
            raise PolicyFault("out of order")
        return [np.zeros((8, 7), np.float32) for _ in looks]

    def ended(self, key, success):
        self.over.append((key.initial_state, success))

    def close(self):
        raise AssertionError("its owner closes it")


def run(policy, episodes, *, workers=2, max_tries=2, actions_folder=None):
    records = []
    arm = ArmToPlay("learned", episodes, policy, actions_folder)
    report = play([arm], records, workers=workers, max_tries=max_tries, executor=ThreadExecutor())
    return report, {record.key.initial_state: record for record in records}


def play(arms, records, *, workers=2, max_tries=2, protocol=PROTOCOL, unwanted=(), executor=None):
    def on_record(record):
        records.append(record)
        return unwanted

    return evaluate(arms, protocol, workers=workers, max_tries=max_tries, on_record=on_record, executor=executor)


def test_every_episode_is_reported_once_with_its_actions(tmp_path):
    policy = Recording()
    report, records = run(policy, keys(*range(6)), actions_folder=tmp_path)
    assert sorted(records) == list(range(6))
    assert {records[1].outcome, records[2].outcome} == {"success", "failure"}
    assert load_actions(tmp_path / actions_name(records[1].key)).dtype == np.float64
    assert (report.episodes, report.errors, report.replaced) == (6, 0, 0)
    assert sum(len(batch) for batch in policy.batches) == 12
    assert sorted(policy.over) == [(state, state % 2 == 1) for state in range(6)]


@pytest.mark.parametrize(("seed", "reason"), [(1, "died .exit code 9"), (2, "hung")])
def test_a_failing_simulator_is_an_error_after_its_tries(monkeypatch, seed, reason):
    monkeypatch.setattr(executors, "serve", failing_serve)
    if reason == "hung":
        monkeypatch.setattr(pool, "SILENCE_SECONDS", 3.0)
    bad = keys(13)[0].model_copy(update={"seed": seed})
    # Where silence is cut short, a slow start of a good worker would count as a hang too.
    good = [] if reason == "hung" else keys(2)
    records = []
    report = play([ArmToPlay("still", [*good, bad], None, None)], records, max_tries=1 if reason == "hung" else 2)
    found = {record.key.initial_state: record for record in records}
    assert found[13].outcome == "error"
    assert re.search(reason, found[13].reason)
    assert all(found[key.initial_state].outcome == "failure" for key in good)
    assert report.errors == 1
    assert report.replaced == found[13].tries == (1 if reason == "hung" else 2)


def test_a_simulator_that_stumbles_is_kept_and_the_episode_tried_again():
    bad = keys(13)[0].model_copy(update={"seed": STUMBLES})
    report, records = run(Recording(), [*keys(1, 2), bad])
    assert records[13].reason == "ValueError: nan in qacc, 2 times"
    assert (records[13].tries, report.errors, report.replaced) == (2, 1, 0)


def test_a_policy_fault_spoils_one_episode_of_a_batch():
    _, records = run(Recording(refused={3}), keys(1, 3, 5), workers=3)
    assert records[3].outcome == "error"
    assert "out of order" in records[3].reason
    assert records[3].tries == 1
    assert [records[state].outcome for state in (1, 5)] == ["success", "success"]


def test_a_machine_that_cannot_simulate_stops_it_all():
    with pytest.raises(MachineFault, match="libegl1"):
        run(Recording(), [keys(13)[0].model_copy(update={"seed": BREAKS})])


def test_a_worker_keeps_its_task():
    episodes = [key for state in range(4) for task in (0, 1) for key in keys(state, task=task)]
    records = []
    play([ArmToPlay("learned", episodes, Recording(), None)], records, executor=ThreadExecutor())
    assert len(records) == 8
    # With one worker the order shows it: all of the first task, then all of the second.
    records.clear()
    play([ArmToPlay("learned", episodes, Recording(), None)], records, workers=1, executor=ThreadExecutor())
    assert [record.key.task for record in records] == [0] * 4 + [1] * 4


def test_all_arms_share_each_scene_and_their_looks_stay_apart(tmp_path):
    episodes = [*keys(0, 1), *keys(0, 1, task=1)]
    first, second, records = Recording(), Recording(refused={1}), []
    arms = [
        ArmToPlay("first", episodes, first, tmp_path / "first"),
        ArmToPlay("second", episodes, second, tmp_path / "second"),
    ]
    executor = ThreadExecutor()
    report = play(arms, records, workers=1, executor=executor)
    assert (executor.started, executor.closed) == ([0], True)
    assert report.scenes == 2
    assert [record.key.task for record in records] == [0] * 4 + [1] * 4
    outcomes = {(record.arm, record.key.initial_state): record.outcome for record in records}
    assert outcomes == {
        ("first", 0): "failure",
        ("first", 1): "success",
        ("second", 0): "failure",
        ("second", 1): "error",
    }
    assert len(list((tmp_path / "first").iterdir())) == 4
    assert len(list((tmp_path / "second").iterdir())) == 2


def test_an_arm_that_is_not_wanted_any_more_ends_and_others_go_on():
    records = []
    arms = [ArmToPlay(name, keys(*range(5)), Recording(), None) for name in ("one", "two")]
    play(arms, records, workers=1, unwanted=("one",), executor=ThreadExecutor())
    assert [record.arm for record in records] == ["one"] + ["two"] * 5


def test_an_arm_without_a_policy_must_be_a_control():
    with pytest.raises(BadInput, match="expert"):
        play([ArmToPlay("exprt", [], None, None)], [])


def test_a_killed_simulator_is_replaced_and_the_episode_is_the_same(tmp_path):
    protocol = PROTOCOL.model_copy(update={"step_budgets": {"libero_object": 16}})
    killed = []

    class Killer(FixedPolicy):
        """Kills the only simulator at the second look of the second episode, once."""

        def act(self, looks):
            if looks[0].key.initial_state == 1 and looks[0].replan == 1 and not killed:
                (child,) = multiprocessing.active_children()
                killed.append(child.pid)
                os.kill(child.pid, signal.SIGKILL)
            return super().act(looks)

    records = []
    policy = Killer(np.tile(np.array([0.5, 0, -0.5, 0, 0, 0, -1], np.float32), (8, 1)))
    arm = ArmToPlay("learned", keys(0, 1, 0), policy, tmp_path)
    report = play([arm], records, workers=1, protocol=protocol)
    assert killed
    assert report.replaced == 1
    assert [record.outcome for record in records] == ["failure"] * 3
    first, second, again = records
    assert (first.tries, second.tries) == (1, 2)
    assert first.scene_sha256 == again.scene_sha256 != second.scene_sha256
    assert first.first_images_sha256 == again.first_images_sha256 != second.first_images_sha256
    assert first.last_images_sha256 == again.last_images_sha256 != first.first_images_sha256
    assert (first.steps, first.looks) == (16, 2)
    assert report.gl_renderer


def test_still_repeats_the_neutral_action():
    (chunk,) = still(8).act([None])
    assert chunk.shape == (8, 7)
    assert chunk.dtype == np.float32
    assert (chunk == [0, 0, 0, 0, 0, 0, -1]).all()


def orphaned_simulator(pipe, parent):
    from harness.processes import die_with_parent

    die_with_parent(parent)
    pipe.send(os.getpid())
    time.sleep(600)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_worker_ends_with_its_parent(tmp_path):

    import subprocess

    script = tmp_path / "parent.py"
    script.write_text(
        "import multiprocessing, os, sys\n"
        f"sys.path.insert(0, {os.path.dirname(__file__)!r})\n"  # noqa: PTH120
        "from test_pool import orphaned_simulator\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    ours, theirs = context.Pipe()\n"
        "    context.Process(target=orphaned_simulator, args=(theirs, os.getpid())).start()\n"
        "    print(ours.recv(), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    child = int(done.stdout)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the worker outlived its parent"
        time.sleep(0.05)
    assert multiprocessing.active_children() == []
