import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.libero.geometry import axis_angle, rotation_vector, yaw_rotation


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4).filter(lambda q: np.linalg.norm(q) > 0.1))
def test_axis_angle_is_robosuite_s_to_the_bit(values):
    from robosuite.utils.transform_utils import quat2axisangle

    quaternion = np.array(values) / np.linalg.norm(values)
    assert np.array_equal(axis_angle(quaternion), quat2axisangle(quaternion.copy()))


def test_the_sign_is_not_normalised():
    assert axis_angle(np.array([0, 0, np.sin(0.1), np.cos(0.1)]))[2] == pytest.approx(0.2)
    assert axis_angle(-np.array([0, 0, np.sin(0.1), np.cos(0.1)]))[2] == pytest.approx(-(2 * np.pi - 0.2))


@given(st.floats(-3, 3))
def test_the_rotation_vector_of_a_yaw_is_the_yaw(yaw):
    assert rotation_vector(yaw_rotation(yaw)) == pytest.approx([0, 0, yaw], abs=1e-6)
