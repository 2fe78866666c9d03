from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.libero.joint import Joint

numbers = st.floats(-1, 1)
points = st.lists(numbers, min_size=3, max_size=3).map(np.array)


@settings(deadline=None)
@given(st.booleans(), points, points.filter(lambda axis: np.linalg.norm(axis) > 0.1), points, numbers, numbers, numbers)
def test_motions_follow_each_other_and_begin_with_the_velocity(slides, anchor, axis, point, start, middle, end):
    joint = Joint(slides, anchor, axis / np.linalg.norm(axis), start, body=1)

    def moved(from_, to, place):
        rotation, shift = replace(joint, position=from_).motion(to)
        return rotation @ place + shift

    assert moved(middle, end, moved(start, middle, point)) == pytest.approx(moved(start, end, point), abs=1e-9)
    assert (moved(start, start + 1e-6, point) - point) / 1e-6 == pytest.approx(joint.velocity(point), abs=1e-4)
