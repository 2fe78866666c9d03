"""The control loop's own parts; that the whole equals robosuite's bit for bit is in test_scene.py."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.libero.control import _SampleClock
from harness.libero.scene import NEUTRAL

TIMESTEP = 0.002


def observable(started=0.0, sampled=False, rate=20):
    from robosuite.utils.observables import Observable

    def sensor(cache):
        taken.append(len(taken))
        return np.zeros(2)

    taken = []
    sensor.__modality__ = "test"
    made = Observable("x", sensor, sampling_rate=rate)
    made._time_since_last_sample, made._sampled = started, sampled
    taken.clear()
    return made, taken


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 0.05), st.booleans(), st.sampled_from([10, 20, 30]), st.integers(1, 120))
def test_the_clock_samples_when_robosuite_s_observables_do(started, sampled, rate, ticks):
    theirs, taken = observable(started, sampled, rate)
    ours, _ = observable(started, sampled, rate)
    clock = _SampleClock([ours], TIMESTEP)
    for _ in range(ticks):
        before = len(taken)
        theirs.update(TIMESTEP, {})
        assert clock.tick() == (len(taken) > before)
    clock.store()
    assert (ours._time_since_last_sample, ours._sampled) == (theirs._time_since_last_sample, theirs._sampled)


def test_observables_out_of_step_are_refused():
    with pytest.raises(ValueError, match="different moments"):
        _SampleClock([observable(0.0)[0], observable(0.01)[0]], TIMESTEP)


def test_a_step_takes_fifty_milliseconds_of_physics_and_seven_numbers(scenes, key):
    scene = scenes("libero_object", 0)
    scene.reset(key(), look=False)
    before = float(scene._domain.sim.data.time)
    scene.step(NEUTRAL, look=False)
    assert float(scene._domain.sim.data.time) - before == pytest.approx(0.05)
    with pytest.raises(ValueError, match="7 numbers"):
        scene.step(NEUTRAL[:4], look=False)


def test_a_state_that_blows_up_goes_on_as_robosuite_s_would(scenes, key, monkeypatch, tmp_path):
    """MuJoCo resets a state with an impossible velocity inside `mj_step`; both loops must then do the same."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to the folder it is in
    scene = scenes("libero_object", 0)
    ends = []
    for advance in (lambda: scene.step(NEUTRAL, look=False), lambda: scene._env.step(NEUTRAL)):
        scene.reset(key(), look=False)
        scene._domain.sim.data.qvel[-1] = 1e11
        advance()
        ends.append(scene.simulator_state())
    assert np.array_equal(*ends)
    assert ends[0][0] < 0.06, "the clock did not start again"
