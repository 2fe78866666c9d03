"""Poses of the tool, and actions relative to them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from harness.data.poses import relative, resolved, tool_frame


def states_of(rotations: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros((len(rotations), 3)), rotations, np.zeros((len(rotations), 2))], 1)


def test_tool_frame_is_the_rotation_from_pointing_down():
    rotations = np.random.default_rng(0).normal(size=(200, 3)) * 1.5
    expected = (Rotation.from_rotvec([np.pi, 0, 0]).inv() * Rotation.from_rotvec(rotations)).as_rotvec()
    np.testing.assert_allclose(tool_frame(states_of(rotations))[:, 3:6], expected, atol=1e-9)


def test_tool_frame_does_not_jump_where_the_axis_angle_flips():
    near, far = tool_frame(states_of(np.array([[3.14, 0.01, 0.02], [-3.14, 0.01, 0.02]])))
    assert np.abs(near).max() < 0.03 and np.abs(near - far).max() < 0.06
    state = np.array([1.0, 2, 3, np.pi, 0, 0, 7, 8])
    np.testing.assert_allclose(tool_frame(state), [1, 2, 3, 0, 0, 0, 7, 8], atol=1e-12)


@given(seed=st.integers(0, 1000), width=st.sampled_from([7, 8]))
@settings(max_examples=20, deadline=None)
def test_relative_actions_resolve_to_what_they_were(seed, width):
    random = np.random.default_rng(seed)
    states, chunks = random.normal(size=(3, width)), random.normal(size=(3, 5, 7))
    told = relative(chunks, states)
    np.testing.assert_allclose(resolved(told, states), chunks, atol=1e-12)
    np.testing.assert_array_equal(told[..., 6], chunks[..., 6])
    np.testing.assert_allclose(told[:, 2, :3], chunks[:, 2, :3] - states[:, :3])
    np.testing.assert_allclose(told[:, 4, 3:6], chunks[:, 4, 3:6] - tool_frame(states)[:, 3:6])
