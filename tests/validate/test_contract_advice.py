"""The profile that trials lead to, and its text."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import partial

import pytest
import torch
from sound_model import WIDTH, Block, Sound
from torch import nn

from harness.backends.profile import FSDPProfile, ProfileSettings, resolved_profile
from harness.models import build
from harness.validate.advice import advise_profile, profile_toml


@pytest.mark.parametrize("model", ["pi0", "pi05", "dm0", "cogact"])
def test_what_our_models_declare_is_what_trials_lead_to(model):
    declared = build(model, "tiny").profile
    advice = advise_profile(partial(build, model, "tiny"))
    assert set(advice.profile.transformer_layer_cls_to_wrap) == set(declared.transformer_layer_cls_to_wrap)
    assert advice.profile.enabled
    assert advice.profile.cpu_ram_efficient_loading


def test_layers_that_are_driven_from_outside_stay_with_the_root():
    advice = advise_profile(partial(build, "pi0", "tiny", "raw"))
    assert advice.profile.transformer_layer_cls_to_wrap == ()
    assert advice.why[0].startswith("LayerPair has no forward")


class Other(Block):
    pass


class HalfRead(Sound):
    """Two kinds of layers; one is read from outside."""

    def __init__(self):
        super().__init__()
        self.others = nn.ModuleList(Other() for _ in range(2))

    def through(self, x):
        x = super().through(x)
        for other in self.others:
            x = x + other.down(other.up(x))
        return x


def test_one_class_of_two_is_left_out_and_the_line_says_why():
    advice = advise_profile(HalfRead)
    assert advice.profile.transformer_layer_cls_to_wrap == ("Block",)
    assert any(
        why.startswith("Other stays in its parent's unit: its others.0.up.weight is used outside") for why in advice.why
    )


class CannotShard(Sound):
    def __init__(self):
        super().__init__()
        self.head.bfloat16()

    def predict(self, x):
        return self.head(x.bfloat16()).float()


def test_what_no_wrapping_helps_is_not_for_fsdp():
    advice = advise_profile(CannotShard)
    assert not advice.profile.enabled
    assert advice.why[-2].startswith("FSDP cannot wrap it: AssertionError")


class Buffered(Sound):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))


class Reading(Sound):
    def __init__(self):
        super().__init__()
        self.scale = self.head.weight.max().item()


@pytest.mark.parametrize(("model", "reason"), [(Buffered, "persistent buffers"), (Reading, "built on `meta`")])
def test_what_keeps_weights_from_being_sent(model, reason):
    advice = advise_profile(model)
    assert not advice.profile.cpu_ram_efficient_loading
    assert advice.why[-1].startswith("cpu_ram_efficient_loading may be False only") and reason in advice.why[-1]


def test_its_text_is_what_a_suite_reads():
    profile = FSDPProfile(("Block", "Other"), recomputed_classes=(), cpu_ram_efficient_loading=True)
    table = tomllib.loads(profile_toml(profile, "mine"))["models"]["mine"]["profile"]
    assert resolved_profile(ProfileSettings.model_validate(table), "mine", FSDPProfile(enabled=False)) == profile
    unsaid = replace(profile, recomputed_classes=None)
    assert "recomputed_classes" not in profile_toml(unsaid, "mine")
