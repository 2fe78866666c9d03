import numpy as np
import pytest

from harness.errors import BadInput, HarnessError
from harness.libero.protocol import PRESETS, preset
from harness.policies.base import PolicyFault
from harness.policies.fixed import FixedPolicy, still
from harness.policies.openpi import OpenpiPolicy
from harness.policies.probe import probe
from harness.policies.remote import check_url, remote_policy
from harness.policies.vla_eval import VlaEvalPolicy


@pytest.mark.parametrize("name", PRESETS)
def test_a_fit_policy_passes_under_every_protocol(name):
    asked = []

    class Watching(FixedPolicy):
        def act(self, looks):
            asked.extend(looks)
            return super().act(looks)

    protocol = preset(name)
    found = probe(Watching(still(16).act([None])[0]), protocol, "libero_goal")
    assert (found.actions, found.repeatable) == (16, True)
    assert set(asked[0].images) == set(protocol.cameras)
    assert all(image.shape == (*protocol.sent_size, 3) for image in asked[0].images.values())
    assert asked[0].state.shape == ({"libero": 9}.get(name, 8),)


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        (np.zeros((8, 6)), "shape"),
        (np.full((8, 7), np.nan), "NaN"),
        (np.full((8, 7), 50.0), "commands 50.*normalisation"),
        (np.zeros((5, 7)), "5 actions.*executes 8.*--replan-steps 5"),
    ],
)
def test_an_unfit_answer_stops_the_evaluation(chunk, reason):
    class Odd(FixedPolicy):
        def act(self, looks):
            return [chunk for _ in looks]

    with pytest.raises(HarnessError, match=reason):
        probe(Odd(np.zeros((8, 7), np.float32)), preset("micro"), "libero_goal")


def test_a_policy_that_does_not_answer_stops_the_evaluation():
    class Dead(FixedPolicy):
        def act(self, looks):
            raise PolicyFault("no connection")

    with pytest.raises(HarnessError, match="nothing was run: no connection"):
        probe(Dead(np.zeros((8, 7), np.float32)), preset("micro"), "libero_goal")


def test_unseeded_noise_is_noticed():
    class Noisy(FixedPolicy):
        def act(self, looks):
            return [np.random.default_rng().normal(size=(8, 7)) for _ in looks]

    assert not probe(Noisy(np.zeros((8, 7), np.float32)), preset("micro"), "libero_goal").repeatable


def test_a_scheme_names_its_client():
    assert isinstance(remote_policy("ws://127.0.0.1:8000"), OpenpiPolicy)
    assert isinstance(remote_policy("vla-eval+ws://127.0.0.1:8000"), VlaEvalPolicy)
    with pytest.raises(BadInput, match=r'did you mean "dexbotic[+]http"'):
        check_url("dexbotc+http://127.0.0.1:7891")
    with pytest.raises(BadInput, match="ws://host:port"):
        check_url("ws://")
