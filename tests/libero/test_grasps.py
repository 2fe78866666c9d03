"""Grasps on a table of convex shapes, without a simulator."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.libero.expert import grasps
from harness.libero.expert.grasps import FINGERTIP_BELOW_M, plan_grasps
from harness.libero.geometry import yaw_rotation

CORNERS = np.array(list(itertools.product([-0.5, 0.5], repeat=3)))


def box(size, at=(0.0, 0.0), yaw=0.0, low=0.0):
    """A box (8, 3) that stands on height `low`."""
    return CORNERS * size @ yaw_rotation(yaw).T + np.array([*at, low + size[2] / 2])


def plate(radius=0.068, base=0.03, height=0.019):
    """A flat bottom within eight pieces of a slanting rim: (9, 8, 3)."""
    bottom = box((2 * base, 2 * base, 0.008))
    pieces = [bottom]
    for piece in range(8):
        turn = yaw_rotation(piece * np.pi / 4)
        half = np.tan(np.pi / 8)
        rim = [(base, 0.0), (base, 0.003), (radius - 0.003, height), (radius, height)]
        pieces.append(np.array([(x, side * half * x, z) for x, z in rim for side in (-1, 1)]) @ turn.T)
    return np.array(pieces)


class Table:
    """As much of a world as the search asks for: shapes by name, each body's origin at its middle, on the table."""

    def __init__(self, **bodies):
        self._shapes = {name: np.asarray(shapes).reshape(-1, 8, 3) for name, shapes in bodies.items()}
        self.bodies = tuple(bodies)

    def shapes(self, name):
        return self._shapes[name]

    def position(self, name):
        return np.append(self.shapes(name).mean(axis=(0, 1))[:2], 0.0)

    def rotation(self, name):
        return np.eye(3)


def test_a_long_box_is_gripped_across_in_its_middle():
    world = Table(box=box((0.04, 0.12, 0.05), at=(0.3, -0.2)))
    site, yaw = plan_grasps(world, "box")[0].at(world, "box")
    assert site[:2] == pytest.approx([0.3, -0.2], abs=0.006)
    assert abs(yaw) == pytest.approx(np.pi / 2)
    assert FINGERTIP_BELOW_M < site[2] < 0.05


def test_a_thing_wider_than_the_hand_has_no_grasp():
    assert plan_grasps(Table(box=box((0.1, 0.1, 0.05))), "box") == []


def test_a_neighbour_takes_the_room_of_the_fingers():
    thing = box((0.04, 0.04, 0.05))
    alone = plan_grasps(Table(thing=thing), "thing")
    walls = [box((0.04, 0.01, 0.05), at=(0, side * 0.05)) for side in (-1, 1)]
    beside = plan_grasps(Table(thing=thing, walls=walls), "thing")
    assert abs(alone[0].closing[1]) == pytest.approx(1)
    assert beside
    assert all(abs(grasp.closing[0]) > 0.7 for grasp in beside)


def test_a_plate_is_gripped_at_its_rim_above_its_bottom():
    found = plan_grasps(Table(plate=plate()), "plate")
    assert found
    for grasp in found:
        assert 0.02 < np.linalg.norm(grasp.offset[:2]) < 0.07
        assert grasp.offset[2] - FINGERTIP_BELOW_M > 0.008


@settings(deadline=None, max_examples=10)
@given(
    size=st.tuples(*[st.floats(0.015, 0.09)] * 3),
    yaw=st.floats(-1.5, 1.5),
    at=st.tuples(st.floats(0.03, 0.12), st.floats(-0.12, 0.12)),
)
def test_no_finger_comes_down_on_anything(size, yaw, at):
    world = Table(thing=box(size, yaw=yaw), other=box((0.05, 0.05, 0.12), at=at))
    shares = np.random.default_rng(0).dirichlet(np.full(8, 0.3), size=400)
    inside = np.concatenate([shares @ world.shapes(name)[0] for name in world.bodies])
    for grasp in plan_grasps(world, "thing"):
        site, turned = grasp.at(world, "thing")
        seen = (inside - site) @ yaw_rotation(turned)
        wide = np.abs(seen[:, 0]) < grasps._FINGER_HALF_WIDTH
        across = (np.abs(seen[:, 1]) > grasps._FINGER_INNER) & (np.abs(seen[:, 1]) < grasps._FINGER_OUTER)
        assert not np.any(wide & across & (seen[:, 2] > -FINGERTIP_BELOW_M))


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), yaw=st.floats(-3, 3))
def test_slices_hold_the_whole_shape_and_no_more_than_its_box(seed, yaw):
    generator = np.random.default_rng(seed)
    shape = generator.uniform(-0.05, 0.05, size=(12, 3))
    turn = yaw_rotation(yaw)
    slices = grasps._sliced([grasps._edges(shape)], turn)
    inside = generator.dirichlet(np.full(12, 0.3), size=200) @ shape @ turn
    held = (inside[:, None] >= slices.low - 1e-6) & (inside[:, None] <= slices.high + 1e-6)
    assert held.all(axis=2).any(axis=1).all()
    turned = shape @ turn
    assert slices.low.min(axis=0) == pytest.approx(turned.min(axis=0), abs=1e-6)
    assert slices.high.max(axis=0) == pytest.approx(turned.max(axis=0), abs=1e-6)
