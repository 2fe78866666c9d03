"""Names and shapes of published weights against what LeRobot itself has; `nox -s peer-lerobot` runs it."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import lerobot_python
import pytest
import torch

from harness.models import build_on_meta
from harness.models.formats.rules import FORMATS
from harness.models.formats.transfer import match

PEER = Path(__file__).with_name("lerobot_weights_peer.py")
ADAPTIVE_NORM = r"model\.paligemma_with_expert\.gemma_expert\.model\.(layers\.\d+\..*layernorm|norm)\."
"""In pi05 only LeRobot's fork of transformers has these as we do."""


class Shape(NamedTuple):
    shape: tuple[int, ...]


class Shapes:
    """Stands for the tensors of a checkpoint whose values are all alike."""

    path = Path("lerobot")

    def __init__(self, shapes):
        self.stored = {name: Shape(tuple(shape)) for name, shape in shapes.items()}

    def __getitem__(self, _name):
        return torch.zeros(())


@pytest.mark.full
@lerobot_python.needed
@pytest.mark.parametrize("name", ["pi0", "pi05"])
def test_lerobot_and_we_have_the_same_names_and_shapes(name, tmp_path):
    model, chosen = build_on_meta(name, "full"), FORMATS[f"lerobot-{name}"]
    ours = {str(chosen.published(own)): list(tensor.shape) for own, tensor in model.state_dict().items()}
    (tmp_path / "ours.json").write_text(json.dumps(ours))
    theirs = lerobot_python.ask(PEER, name, tmp_path / "ours.json")

    def compared(names):
        return {one for one in names if name == "pi0" or not re.match(ADAPTIVE_NORM, one)}

    # It reads ours: nothing unknown to it, and nothing lacking but what no training reads, and one of two tied names.
    assert not compared(theirs["unexpected"])
    lacking = {chosen.canonical(one) for one in compared(theirs["missing"])}
    assert {one for one in lacking if one not in ours and not chosen.is_unread(one)} == set()
    assert len(lacking) < 5
    # We read its: every tensor of ours is there in its shape, and nothing is left over.
    fork = {one: shape for one, shape in ours.items() if one not in compared(ours)}
    found = match(model, Shapes({one: theirs["shapes"][one] for one in compared(theirs["shapes"])} | fork), chosen)
    assert set(found) == set(model.state_dict())
