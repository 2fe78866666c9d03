"""What is asked of the Trainer, in the words of either transformers."""

from __future__ import annotations

import torch

from harness.backends.profile import DEXBOTIC, FSDPProfile, ProfileSettings
from harness.backends.trainer import fsdp_config, fsdp_settings
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
    over = ProfileSettings(transformer_layer_cls_to_wrap=(), cpu_ram_efficient_loading=True).over(declared)
    assert over == FSDPProfile((), cpu_ram_efficient_loading=True, cast_model_to_bf16_backends=("fsdp",))
    assert ProfileSettings().over(declared) == declared


def test_dexbotics_profiles():
    assert DEXBOTIC["dm0"].transformer_layer_cls_to_wrap == ("Qwen3MLP",)
    assert DEXBOTIC["cogact"].transformer_layer_cls_to_wrap == ("Qwen2DecoderLayer",)
    assert {DEXBOTIC[name].transformer_layer_cls_to_wrap for name in ("pi0", "pi05")} == {()}
