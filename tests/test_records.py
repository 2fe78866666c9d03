"""What the digest of a value is made of."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from harness.records import ADDED, Value


class Part(Value):
    size: int


class Whole(Value):
    part: Part
    parts: tuple[Part, ...]
    named: dict[str, Part]


class LaterPart(Value):
    size: int
    colour: Annotated[str, ADDED] = "grey"


class LaterWhole(Value):
    part: LaterPart
    parts: tuple[LaterPart, ...]
    named: dict[str, LaterPart]
    height_m: Annotated[float, ADDED] = Field(default=0.5, ge=0)


@given(
    st.integers(), st.lists(st.integers(), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=3)
)
def test_a_field_that_was_added_changes_no_digest_until_it_is_used(size, sizes, named):
    plain = {
        "part": {"size": size},
        "parts": [{"size": each} for each in sizes],
        "named": {name: {"size": each} for name, each in named.items()},
    }
    later = LaterWhole.model_validate(plain)
    assert later.digest() == Whole.model_validate(plain).digest()
    used = [
        later.model_copy(update={"height_m": 0.25}),
        later.model_copy(update={"part": LaterPart(size=size, colour="red")}),
        later.model_copy(update={"parts": (*later.parts, LaterPart(size=1, colour="red"))}),
        later.model_copy(update={"named": {**later.named, "last": LaterPart(size=1, colour="red")}}),
    ]
    assert len({later.digest(), *(each.digest() for each in used)}) == 5


def test_a_digest_is_of_the_canonical_json():
    text = json.dumps({"size": 3}, separators=(",", ":"))
    assert Part(size=3).digest() == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert LaterPart(size=3).digest(exclude={"size"}) == hashlib.sha256(b"{}").hexdigest()[:12]
