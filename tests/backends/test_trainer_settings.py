"""What is asked of the Trainer, in the words of either transformers."""

from __future__ import annotations

import pytest
import torch

from harness.backends.profile import FSDPProfile, ProfileSettings, resolved_profile
from harness.backends.trainer import fsdp_config, fsdp_settings
from harness.errors import BadInput
from harness.models import build


def config(wrap: str = "layers", **more: object) -> dict[str, object]:
    with torch.device("meta"):
        model = build("pi0", "tiny")
    return fsdp_config(model, 2, wrap, "sharded", recompute=True) | {"reshard_after_forward": True} | more


def test_transformers_5_is_asked_by_its_own_arguments():
    settings = fsdp_settings(config(), "policy", "5.24.0")
    asked = settings.arguments["fsdp_config"]
    assert settings.arguments["fsdp"] is True
    assert (asked["version"], asked["state_dict_type"]) == (2, "SHARDED_STATE_DICT")
    assert asked["transformer_layer_cls_to_wrap"] == ["JointLayer"]
    assert settings.environment == {}
    assert settings.mixed_precision_policy == "policy"


def test_transformers_4_ignores_the_version_so_accelerate_is_told():
    settings = fsdp_settings(config(), "policy", "4.57.6")
    assert settings.arguments["fsdp"] == "full_shard auto_wrap"
    assert "version" not in settings.arguments["fsdp_config"]
    assert settings.environment["FSDP_VERSION"] == "2"
    assert settings.environment["FSDP_STATE_DICT_TYPE"] == "SHARDED_STATE_DICT"
    assert settings.environment["FSDP_ACTIVATION_CHECKPOINTING"] == "true"


def test_root_alone_wraps_no_class():
    asked = config(wrap="root")
    assert asked["auto_wrap_policy"] == "NO_WRAP"
    assert "transformer_layer_cls_to_wrap" not in asked
    assert fsdp_settings(asked, None, "4.57.6").arguments["fsdp"] == "full_shard"


def test_a_suite_replaces_what_it_names_and_nothing_else():
    declared = FSDPProfile(("Layer",), cast_model_to_bf16_backends=("fsdp",))
    asked = ProfileSettings(transformer_layer_cls_to_wrap=(), cpu_ram_efficient_loading=True)
    expected = FSDPProfile((), cpu_ram_efficient_loading=True, cast_model_to_bf16_backends=("fsdp",))
    assert resolved_profile(asked, "pi0", declared) == expected
    assert resolved_profile(ProfileSettings(), "pi0", declared) == declared


def test_dexbotics_profiles():
    declared, asked = FSDPProfile(("JointLayer",)), ProfileSettings(base="dexbotic")
    wrapped = {name: resolved_profile(asked, name, declared) for name in ("pi0", "pi05", "dm0", "cogact")}
    assert wrapped["dm0"].transformer_layer_cls_to_wrap == ("Qwen3MLP",)
    assert wrapped["cogact"].transformer_layer_cls_to_wrap == ("Qwen2DecoderLayer",)
    assert {wrapped[name].transformer_layer_cls_to_wrap for name in ("pi0", "pi05")} == {()}
    assert {profile.recomputed_classes for profile in wrapped.values()} == {("JointLayer",)}
    assert wrapped["dm0"].cast_model_to_bf16_backends == ("fsdp", "fsdp2")
    kept = resolved_profile(ProfileSettings(base="dexbotic", cast_model_to_bf16_backends=()), "dm0", declared)
    assert (kept.transformer_layer_cls_to_wrap, kept.cast_model_to_bf16_backends) == (("Qwen3MLP",), ())
    with pytest.raises(BadInput, match="not mine:model"):
        resolved_profile(asked, "mine:model", declared)
