from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from harness.libero.expert.planner import next_conjunct

DRAWERS, THINGS, PLACES = ("top", "bottom"), ("bowl", "mug", "plate"), ("stove_region", "rack_region")


@dataclass
class Kitchen:
    """A world of facts alone, in which a skill makes its conjunct hold and undoes what it must."""

    goal: tuple
    held: set
    done: list = field(default_factory=list)

    def holds(self, conjunct):
        return conjunct in self.held

    def base(self, target):
        return target.removesuffix("_region")

    def lid(self, region):
        return region if region in DRAWERS else None

    def perform(self, conjunct):
        predicate, name = conjunct[:2]
        opposite = {"open": "close", "close": "open", "turnon": "turnoff", "turnoff": "turnon"}.get(predicate)
        if opposite is not None:
            self.held.discard((opposite, name))
        else:
            if predicate == "in":
                assert ("open", conjunct[2]) in self.held, "put into a closed drawer"
            carried = {other for other in self.held if len(other) == 3 and other[2] == name}
            self.held -= {other for other in self.held if len(other) == 3 and other[1] == name} | carried
        self.held.add(conjunct)
        self.done.append(conjunct)


drawer_states = st.sampled_from([(), ("open",), ("close",)])


@st.composite
def kitchens(draw):
    goal = [(state[0], drawer) for drawer in DRAWERS if (state := draw(drawer_states))]
    if draw(st.booleans()):
        goal.append(("turnon", "stove"))
    for index, thing in enumerate(THINGS):
        places = [("in", drawer) for drawer in DRAWERS] + [("on", place) for place in PLACES]
        places += [("on", below) for below in THINGS[index + 1 :]]
        if (place := draw(st.sampled_from([None, *places]))) is not None:
            goal.append((place[0], thing, place[1]))
    start = {(draw(st.sampled_from(["open", "close"])), drawer) for drawer in DRAWERS} | {("turnoff", "stove")}
    return Kitchen(tuple(draw(st.permutations(goal))), start)


@given(kitchens())
def test_every_order_of_a_goal_is_reached_with_no_conjunct_done_twice(kitchen):
    while (conjunct := next_conjunct(kitchen)) is not None:
        kitchen.perform(conjunct)
        assert len(kitchen.done) <= len(kitchen.goal) + len(DRAWERS)
    assert all(kitchen.holds(conjunct) for conjunct in kitchen.goal)
    assert len(kitchen.done) == len(set(kitchen.done))


@given(kitchens(), st.lists(st.integers(1, 12), max_size=4))
def test_what_stops_holding_is_done_again(kitchen, slips):
    while (conjunct := next_conjunct(kitchen)) is not None:
        kitchen.perform(conjunct)
        if len(kitchen.done) in slips:
            kitchen.held -= {held for held in kitchen.held if len(held) == 3}
        assert len(kitchen.done) < 60
    assert all(kitchen.holds(conjunct) for conjunct in kitchen.goal)


def test_the_drawer_is_opened_first_and_closed_last():
    kitchen = Kitchen((("close", "bottom"), ("in", "bowl", "bottom")), {("close", "bottom")})
    while (conjunct := next_conjunct(kitchen)) is not None:
        kitchen.perform(conjunct)
    assert kitchen.done == [("open", "bottom"), ("in", "bowl", "bottom"), ("close", "bottom")]
