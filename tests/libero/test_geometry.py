import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from harness.libero.geometry import Boxes, axis_angle, rotation_vector, turning, yaw_rotation


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


def a_box(values):
    turn = turning(np.array([1.0, 0, 0]), values[3]) @ turning(np.array([0, 1.0, 0]), values[4])
    return Boxes(np.array([values[:3]]), (turn @ turning(np.array([0, 0, 1.0]), values[5]))[None], values[6:9][None])


box_values = st.lists(st.floats(0.1, 1), min_size=9, max_size=9).map(np.array)


@settings(deadline=None)
@given(box_values, box_values)
def test_boxes_overlap_where_a_linear_program_finds_a_common_point(first, second):
    first, second = a_box(first), a_box(second)

    def common(margin):
        """Whether a point lies in both boxes, grown by a margin."""
        sides = [(sign * box.axes[0].T, box) for box in (first, second) for sign in (1, -1)]
        normals = np.concatenate([side for side, _ in sides])
        limits = np.concatenate([side @ box.centres[0] + box.halves[0] + margin for side, box in sides])
        return linprog(np.zeros(3), normals, limits, bounds=(None, None)).success

    overlap = bool(first.overlaps(second)[0, 0])
    assert overlap == bool(second.overlaps(first)[0, 0])
    assert common(1e-6) if overlap else not common(-1e-6)


def test_parallel_boxes_overlap_by_their_faces():
    cube = Boxes(np.zeros((1, 3)), np.eye(3)[None], np.full((1, 3), 0.5))
    for axis in np.eye(3):
        assert cube.overlaps(cube.moved(np.eye(3), 0.99 * axis))[0, 0]
        assert not cube.overlaps(cube.moved(np.eye(3), 1.01 * axis))[0, 0]
    assert cube.extent(np.array([1.0, 1.0, 0]) / np.sqrt(2)) == pytest.approx(np.sqrt(0.5))
