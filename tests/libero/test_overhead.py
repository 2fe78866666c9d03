"""What hangs over an object, on a table of boxes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.libero.expert.overhead import open_above, way_out
from harness.libero.geometry import Boxes, boxes_of


def block(centre, size):
    return Boxes(np.array([centre], dtype=float), np.eye(3)[None], np.array([size], dtype=float) / 2)


class Room:
    """An object, 10 cm wide and 5 cm high, at the origin of a table, among blocks."""

    def __init__(self, *others):
        self.others = boxes_of(list(others))

    def body(self, name):
        return 1

    def boxes(self, body):
        return block((0, 0, 0.025), (0.1, 0.1, 0.05))

    def boxes_besides(self, body):
        return self.others

    def position(self, name):
        return np.array([0.0, 0.0, 0.03])

    def half_size(self, region):
        return np.array([0.05, 0.05, 0.02])


def shelf(x):
    """A board 20 cm above the table that reaches from `x` to the right."""
    return block((x + 0.2, 0, 0.2), (0.4, 1.0, 0.02))


def test_an_object_under_the_open_sky_needs_no_way_out():
    assert way_out(Room(), "bowl") == pytest.approx([0, 0])
    assert way_out(Room(shelf(0.06)), "bowl") == pytest.approx([0, 0])


def test_the_way_out_from_under_a_board_is_the_shortest():
    assert way_out(Room(shelf(0.02)), "bowl") == pytest.approx([-0.04, 0], abs=0.005)


def test_the_way_out_goes_round_what_stands_in_it():
    wall = block((-0.07, 0, 0.05), (0.02, 0.3, 0.1))
    covered = block((0.1, 0, 0.2), (0.16, 0.12, 0.02))
    way = way_out(Room(covered, wall), "bowl")
    assert abs(way[1]) > 0.1
    assert abs(way[0]) < 0.01


def test_in_a_box_under_a_board_there_is_no_way_out():
    walls = [block((x, y, 0.05), (0.02 + abs(y), 0.02 + abs(x), 0.1)) for x, y in ((0.08, 0), (-0.08, 0), (0, 0.08))]
    front = block((0, -0.08, 0.05), (0.1, 0.02, 0.1))
    assert way_out(Room(shelf(0.02), *walls, front), "bowl") == pytest.approx([0, 0])


def test_a_low_step_is_no_obstacle_to_what_is_lifted_over_it():
    step = block((-0.08, 0, 0.005), (0.04, 0.3, 0.01))
    assert way_out(Room(shelf(0.02), step), "bowl") == pytest.approx([-0.04, 0], abs=0.005)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-0.3, 0.3)] * 2, st.floats(0.06, 0.3), *[st.floats(0.01, 0.3)] * 2), max_size=5))
def test_where_the_way_out_ends_nothing_hangs_over_the_object(boards):
    room = Room(*(block((x, y, z), (width, depth, 0.01)) for x, y, z, width, depth in boards))
    way = way_out(room, "bowl")
    column = block((0, 0, 0.1), (0.1, 0.1, 0.18))
    if np.any(way) or not column.overlaps(room.others).any():
        assert not column.moved(np.eye(3), np.append(way, 0.0)).overlaps(room.others).any()


def test_a_region_is_filled_from_above_only_where_nothing_covers_its_middle():
    assert open_above(Room(), "bowl", "drawer")
    assert open_above(Room(shelf(0.03)), "bowl", "drawer")  # covers its edge
    assert not open_above(Room(shelf(0.01)), "bowl", "drawer")
