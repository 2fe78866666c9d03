"""Models that keep the contract, and one that does not run at all."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from sound_model import WIDTH, Sound
from torch import nn
from torch.utils.checkpoint import checkpoint

from harness.backends.profile import FSDPProfile
from harness.errors import BadInput
from harness.models import build
from harness.models.clip import ClipConfig
from harness.models.cogact import CogAct
from harness.models.pi0 import Pi0
from harness.models.presets import COGACT, PI0
from harness.models.vision import SiglipConfig
from harness.validate.contract import check_model

ROOT = Path(__file__).parents[2]
PAGE, CONTRACT = ROOT / "docs" / "adding-a-model.md", ROOT / "docs" / "model-contract.md"
ROOM = ROOT / "harness" / "validate"


def with_siglip() -> Pi0:
    config = PI0["tiny"]
    tower = SiglipConfig(width=16, layers=2, heads=2, ffn=32, patch=8)
    return Pi0(config.__class__(**{**vars(config), "vision": tower}))


def with_clip() -> CogAct:
    config = COGACT["tiny"]
    tower = ClipConfig(width=16, layers=3, heads=2, ffn=32, patch=8)
    return CogAct(config.__class__(**{**vars(config), "vision": tower}))


@pytest.mark.parametrize("model", ["pi0", "pi05", "dm0", "cogact"])
def test_our_models_keep_it(model):
    assert check_model(partial(build, model, "tiny")) == []


@pytest.mark.parametrize("model", [with_siglip, with_clip])
def test_so_do_the_towers_of_transformers(model):
    assert check_model(model) == []


def test_driven_from_outside_but_sharded_at_the_root_alone_is_right():
    assert check_model(partial(build, "pi0", "tiny", "raw")) == []


def test_the_model_of_the_page_on_adding_one_keeps_it(tmp_path, monkeypatch):
    text = next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    (tmp_path / "page_model.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert check_model(partial(importlib.import_module("page_model").build, "small")) == []
    finally:
        del sys.modules["page_model"]


def test_a_small_model_keeps_it():
    assert check_model(Sound) == []


class Recomputing(Sound):
    """Calls its layers through activation checkpointing of its own."""

    def through(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class ManualLinear(Sound):
    """Multiplies by hand with weights of its own unit, in their dtype."""

    def predict(self, x):
        return F.linear(x.to(self.head.weight.dtype), self.head.weight, self.head.bias).float()


class Autocasting(Sound):
    """Leaves the dtypes of its products to autocast."""

    def see(self, images):
        with torch.autocast("cpu", torch.bfloat16):
            return self.projector(self.vision(images[:, 0]).flatten(1)).to(self.dtype())


class Shapes(Sound):
    """Asks a layer's weight for its shape, which sharding does not change."""

    def through(self, x):
        assert self.blocks[0].up.weight.shape == (2 * WIDTH, WIDTH)
        assert self.blocks[0].up.weight.device == x.device or x.is_meta
        return super().through(x)


class Frozen(Sound):
    """Keeps a module that the loss does not reach, and says so."""

    def __init__(self):
        super().__init__()
        self.unread = nn.Linear(WIDTH, WIDTH).requires_grad_(False)


class TiedAtTheRoot(Sound):
    """Ties its output embedding to the input's, both outside of the layers."""

    def __init__(self):
        super().__init__()
        self.lm_head = nn.Linear(WIDTH, 16, bias=False)
        self.lm_head.weight = self.words.weight

    def predict(self, x):
        return super().predict(x) + self.lm_head(x).float().mean()


@pytest.mark.parametrize("model", [Recomputing, ManualLinear, Autocasting, Shapes, Frozen, TiedAtTheRoot])
def test_what_is_allowed_is_not_found(model):
    assert check_model(model) == []


class Raises(Sound):
    def block(self):
        return BlockThatRaises()


class BlockThatRaises(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        raise ValueError("out of range")


Raises.profile = FSDPProfile(("BlockThatRaises",))


def test_a_model_that_does_not_run_is_one_finding():
    (found,) = check_model(Raises)
    assert (found.rule, found.where, found.severity) == ("runs", "blocks.0", "error")
    assert "ValueError: out of range" in found.why
    assert re.search(r"test_contract\.py:\d+$", found.line)


class KnowsItsClass(Sound):
    def through(self, x):
        for block in self.blocks:
            x = block(x) if type(block).__name__ == "Block" else block.nowhere
        return x


def test_what_no_rule_foresees_is_still_found():
    (found,) = check_model(KnowsItsClass)
    assert (found.rule, found.where) == ("shards", "(model)")
    assert "AttributeError" in found.why and "test_contract.py:" in found.line


def test_a_profile_that_names_an_unknown_class_is_an_error(monkeypatch):
    monkeypatch.setattr(Sound, "profile", FSDPProfile(("Blok",)))
    with pytest.raises(BadInput, match=r"did you mean \"Block\""):
        check_model(Sound)


def test_no_process_group_is_left_behind():
    check_model(Sound)
    assert not torch.distributed.is_initialized()


def test_the_page_tells_every_rule_and_no_other():
    names = set()
    for file in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            given = [keyword.value for keyword in node.keywords if keyword.arg == "rule"]
            first = node.args[:1] if ast.unparse(node.func) in ("Breach", "_mix") else []
            names |= {value.value for value in (*given, *first) if isinstance(value, ast.Constant)}
    told = re.findall(r"^\| `([a-z0-9-]+)` \|", CONTRACT.read_text(), re.MULTILINE)
    assert len(told) == len(set(told))
    assert names == {*told, "no-process-group", "root-first"}
