import math
import time

import msgpack
import numpy as np
import pytest

from harness.policies.base import PolicyFault
from harness.policies.vla_eval import VlaEvalPolicy, shortest_rotation


def read(data):
    def hook(found):
        if "__ndarray__" in found:
            return np.frombuffer(found["data"], dtype=found["dtype"]).reshape(found["shape"])
        return found

    return msgpack.unpackb(data, object_hook=hook)


def message(kind, payload, seq):
    return msgpack.packb({"type": kind, "payload": payload, "seq": seq, "timestamp": time.time()})


class Server:
    """Answers observation n of an episode with n in every element; keeps what it was sent."""

    def __init__(self, wishes=None, version=1, fail_at=None, drop_at=None, wrong_seq=False):
        self.hello = {"harness_version": "0.8.0", "protocol_version": version, "observation_params": wishes or {}}
        self.fail_at, self.drop_at, self.wrong_seq = fail_at, drop_at, wrong_seq
        self.seen = []

    def __call__(self, connection):
        step = 0
        for data in connection:
            found = read(data)
            self.seen.append((found["type"], found["payload"]))
            if found["type"] == "hello":
                connection.send(message("hello", self.hello, found["seq"]))
            elif found["type"] == "episode_start":
                step = 0
            elif found["type"] == "observation":
                if step == self.drop_at:
                    return
                if step == self.fail_at:
                    connection.send(message("error", {"error": "observation_failed: out of memory"}, found["seq"]))
                    continue
                action = np.full(7, float(step), np.float32)
                packed = {"__ndarray__": True, "data": action.tobytes(), "dtype": "<f4", "shape": [7]}
                connection.send(message("action", {"actions": packed}, found["seq"] + self.wrong_seq))
                step += 1

    def kinds(self):
        return [kind for kind, _ in self.seen]


def test_an_episode_in_vla_evals_format(websocket_server, make_look, hasty):
    server = Server({"send_wrist_image": True, "send_state": True, "quat_no_antipodal": True})
    with websocket_server(server) as url:
        policy = VlaEvalPolicy(url, hasty)
        chunks = [policy.act([make_look(3, replan)])[0] for replan in range(3)]
        policy.ended(make_look(3).key, success=True)
        policy.act([make_look(4)])
        policy.close()
    assert [chunk.shape for chunk in chunks] == [(1, 7)] * 3
    assert [chunk[0, 0] for chunk in chunks] == [0.0, 1.0, 2.0]
    expected = ["hello", "episode_start", *["observation"] * 3, "episode_end", "episode_start", "observation"]
    assert server.kinds() == expected
    assert server.seen[0][1]["protocol_version"] == 1
    assert server.seen[1][1]["task"] == {"name": "go", "suite": "libero_object", "task_id": 0, "episode_idx": 3}
    shown = server.seen[2][1]
    assert set(shown["images"]) == {"agentview", "wrist"}
    assert (shown["images"]["agentview"] == make_look().images["agentview"]).all()
    assert shown["task_description"] == "go"
    assert shown["states"].tolist() == list(range(8))
    assert server.seen[5][1] == {"success": True}


def test_a_server_is_shown_what_it_wants_and_no_more(websocket_server, make_look, hasty):
    server = Server()
    with websocket_server(server) as url:
        policy = VlaEvalPolicy(url, hasty)
        policy.act([make_look()])
        policy.close()
    assert set(server.seen[2][1]["images"]) == {"agentview"}
    assert "states" not in server.seen[2][1]


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (Server({"absolute_action": True}), "wants what is not to be had here: absolute_action"),
        (Server(version=2), "speaks vla-eval's protocol 2"),
        (Server(fail_at=0), "answers with error: observation_failed: out of memory"),
        (Server(wrong_seq=True), "answers observation"),
        (lambda connection: connection.send("welcome"), "greets with text"),
    ],
)
def test_what_cannot_be_is_a_fault(websocket_server, make_look, hasty, server, reason):
    with websocket_server(server) as url:
        policy = VlaEvalPolicy(url, hasty)
        with pytest.raises(PolicyFault, match=reason):
            policy.act([make_look()])
        policy.close()


def test_the_wrist_camera_must_be_there_if_it_is_wanted(websocket_server, make_look, hasty):
    with websocket_server(Server({"send_wrist_image": True})) as url:
        policy = VlaEvalPolicy(url, hasty)
        with pytest.raises(PolicyFault, match="wrist camera"):
            policy.act([make_look(cameras=("agentview",))])
        policy.close()


def test_a_session_that_was_lost_is_not_taken_up_in_the_middle(websocket_server, make_look, hasty):
    with websocket_server(Server(drop_at=1)) as url:
        policy = VlaEvalPolicy(url, hasty)
        policy.act([make_look(0, 0)])
        for _ in range(2):
            with pytest.raises(PolicyFault, match="lost"):
                policy.act([make_look(0, 1)])
        with pytest.raises(PolicyFault, match="session of this episode was lost"):
            policy.act([make_look(5, 7)])
        policy.close()


def test_one_episodes_error_spoils_no_other_of_the_batch(websocket_server, make_look, hasty):
    """The pool asks a failed batch again look by look; the good ones must not be sent twice."""
    server = Server(fail_at=1)
    with websocket_server(server) as url:
        policy = VlaEvalPolicy(url, hasty)
        policy.act([make_look(0), make_look(1)])
        policy.ended(make_look(0).key, success=False)
        policy.act([make_look(0)])
        policy.ended(make_look(0).key, success=False)
        policy.act([make_look(2)])
        batch = [make_look(1, 1), make_look(2, 1)]
        with pytest.raises(PolicyFault):
            policy.act(batch)
        before = server.kinds().count("observation")
        for each in batch:
            with pytest.raises(PolicyFault, match="out of memory"):
                policy.act([each])
        assert server.kinds().count("observation") == before
        policy.close()


def test_rotations_are_brought_below_half_a_turn():
    state = np.arange(8.0)
    state[3:6] = [1.5 * math.pi, 0, 0]
    assert np.allclose(shortest_rotation(state)[3:6], [-0.5 * math.pi, 0, 0])
    assert (np.delete(shortest_rotation(state), [3, 4, 5]) == [0, 1, 2, 6, 7]).all()
    state[3:6] = [0.5, -0.25, 0]
    assert (shortest_rotation(state) == state).all()
