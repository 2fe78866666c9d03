"""Each rule on parameters, buffers and their first values, with a model that breaks it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sound_model import WIDTH, Sound
from torch import nn

from harness.backends.profile import FSDPProfile
from harness.validate.contract import check_model
from harness.validate.findings import Finding
from harness.validate.subject import Subject
from harness.validate.tracing import is_at_or_below
from harness.validate.weights import unit_of


def only(model: type[Sound], rule: str) -> Finding:
    """The one finding there is."""
    found = check_model(model)
    assert [finding.rule for finding in found] == [rule]
    return found[0]


class Unread(Sound):
    def __init__(self):
        super().__init__()
        self.aside = nn.ModuleDict({"old_head": nn.Linear(WIDTH, 4)})


def test_a_parameter_the_loss_does_not_reach():
    found = only(Unread, "never-receives-gradient")
    assert (found.where, found.severity) == ("aside", "error")
    assert "aside.old_head.weight and 1 more" in found.why


class UnreadScale(Sound):
    def __init__(self):
        super().__init__()
        self.blocks[1].up.scale = nn.Parameter(torch.ones(1))


def test_it_is_told_by_the_module_that_owns_it_where_others_are_reached():
    found = only(UnreadScale, "never-receives-gradient")
    assert (found.where, "blocks.1.up.scale:" in found.why) == ("blocks.1.up", True)


class SideDoor(nn.Module):
    """What the loss reads leaves through a list; the output of the last one is dropped."""

    def __init__(self, cache):
        super().__init__()
        self.up, self.cache = nn.Linear(WIDTH, WIDTH), cache

    def forward(self, x):
        y = self.up(x)
        self.cache.append(y)
        return x * y


class ThroughTheCache(Sound):
    profile = FSDPProfile(("SideDoor",))

    def __init__(self):
        self.cache = []
        super().__init__()

    def block(self):
        return SideDoor(self.cache)

    def through(self, x):
        self.cache.clear()
        super().through(x)
        return self.cache[0] + self.cache[1]


def test_a_gradient_that_comes_around_the_output():
    found = only(ThroughTheCache, "gradient-around-output")
    assert (found.where, found.severity) == ("blocks.1", "error")
    assert "out of bounds for storage of size 0" in Subject(ThroughTheCache).sharded.failure.error


class TiedAcross(Sound):
    def __init__(self):
        super().__init__()
        self.blocks[1].up.weight = self.blocks[0].up.weight


class TiedOutput(Sound):
    """The output embedding is a layer's, the input embedding the root's."""

    def __init__(self):
        super().__init__()
        self.blocks[1].words = nn.Embedding(16, WIDTH)
        self.blocks[1].words.weight = self.words.weight


@pytest.mark.parametrize(
    ("model", "where", "units"),
    [(TiedAcross, "blocks.1.up", "in unit blocks.0"), (TiedOutput, "blocks.1.words", "in unit (model)")],
)
def test_one_parameter_in_two_units(model, where, units):
    found = only(model, "tied-weights")
    assert (found.where, found.severity) == (where, "error")
    assert units in found.why


class HalfInHalf(Sound):
    frozen = False

    def __init__(self):
        super().__init__()
        self.blocks[1].down.bfloat16().requires_grad_(not self.frozen)

    def through(self, x):
        return x


class FrozenHalf(HalfInHalf):
    frozen = True


@pytest.mark.parametrize(
    ("model", "severity", "who"), [(HalfInHalf, "error", "FSDP"), (FrozenHalf, "warning", "FSDP1")]
)
def test_two_dtypes_in_one_unit(model, severity, who):
    found = [finding for finding in check_model(model) if finding.rule == "mixed-unit-dtypes"]
    assert [(finding.where, finding.severity) for finding in found] == [("blocks.1.down", severity)]
    assert f"{who} shards" in found[0].why
    assert "blocks.1.up.weight is float32, blocks.1.down.weight is bfloat16" in found[0].why


class Table(Sound):
    persistent, numbers = True, 2**18

    def __init__(self):
        super().__init__()
        self.vision.register_buffer("frequencies", torch.zeros(self.numbers), persistent=self.persistent)


class TableAside(Table):
    persistent = False


class SmallTable(Table):
    numbers = 2**17


def test_a_large_buffer_in_every_checkpoint():
    found = only(Table, "large-persistent-buffer")
    assert (found.where, found.severity) == ("vision", "warning")
    assert "frequencies of 1.0 MiB" in found.why


@pytest.mark.parametrize("model", [TableAside, SmallTable])
def test_buffers_that_are_small_or_not_saved(model):
    assert check_model(model) == []


class Optimises(Sound):
    def __init__(self):
        super().__init__()
        self.optimizer = torch.optim.SGD(self.parameters(), lr=1.0)


def test_an_optimizer_of_the_models_own():
    found = only(Optimises, "optimizer-before-sharding")
    assert (found.where, found.severity) == ("(model)", "error")
    assert "SGD `optimizer`" in found.why


class ReadsValues(Sound):
    def __init__(self):
        super().__init__()
        self.rates = torch.linspace(0.0, 0.1, 3).tolist()


class StaysOnTheHost(Sound):
    def __init__(self):
        super().__init__()
        self.projector.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, device="cpu"))


def test_a_build_that_reads_values():
    found = only(ReadsValues, "meta-initialisation")
    assert (found.where, found.severity) == ("(model)", "error")
    assert "test_contract_weights.py:" in found.line
    assert "cpu_ram_efficient_loading must be False" in found.why


def test_a_build_that_leaves_a_parameter_on_the_host():
    found = only(StaysOnTheHost, "meta-initialisation")
    assert (found.where, found.line) == ("projector", None)
    assert "projector.weight" in found.why


class OtherDice(Sound):
    def __init__(self):
        super().__init__()
        numbers = np.random.default_rng().normal(size=WIDTH)
        if not self.projector.bias.is_meta:
            self.projector.bias.data = torch.tensor(numbers, dtype=torch.float32)


def test_weights_that_do_not_follow_the_seed():
    found = only(OtherDice, "weights-follow-seed")
    assert (found.where, found.severity) == ("projector", "error")


paths = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=4).map(".".join)


@given(paths, st.lists(paths, max_size=6))
def test_a_parameter_belongs_to_the_innermost_unit_above_it(name, units):
    above = [unit for unit in units if f"{name}.".startswith(f"{unit}.")]
    unit = unit_of(name, units)
    assert (unit in above) if above else unit == ""
    assert all(is_at_or_below(unit, outer) for outer in above)
