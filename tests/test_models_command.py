"""`harness models` and `harness export`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from harness.cli import app
from harness.data.dataset import open_dataset
from harness.errors import BadInput
from harness.models import MODELS, build, input_shape
from harness.policies.card import write_card
from harness.policies.checkpoint import CheckpointPolicy
from harness.suite import Data

RUNNER = CliRunner()


def printed(*command: str) -> str:
    answer = RUNNER.invoke(app, list(command), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output


@pytest.fixture
def policy(tmp_path) -> Path:
    """What a learning run exports."""
    folder = tmp_path / "export"
    torch.manual_seed(0)
    write_card(folder, "cogact", "tiny", open_dataset(Data(), None, input_shape("cogact", "tiny")))
    save_file(build("cogact", "tiny").state_dict(), folder / "model.safetensors")
    return folder


def test_models_lists_all_with_parts_that_add_up():
    found = json.loads(printed("models", "--size", "micro", "--json"))
    assert [one["name"] for one in found] == list(MODELS)
    for one in found:
        assert one["parameters"] == sum(one["parts"].values())
        assert one["parameters"] == one["trainable_parameters"] + one["frozen_parameters"]
        assert one["training_flops"] == 3 * one["forward_flops"] > 1e6
        assert one["tokens_per_sample"] > 16
        assert len(one["static_memory"]) == 6 * 4


def test_models_of_full_size_have_the_published_figures():
    found = {one["name"]: one for one in json.loads(printed("models", "--json"))}
    published = {"pi0": (3238.0, 11.54), "pi05": (3353.4, 13.37), "dm0": (2429.6, 27.03), "cogact": (7478.7, 26.76)}
    assert {name: round(one["parameters"] / 1e6, 1) for name, one in found.items()} == {
        name: parameters for name, (parameters, _) in published.items()
    }
    for name, (_, teraflops) in published.items():
        assert found[name]["training_flops"] / 1e12 == pytest.approx(teraflops, rel=1e-3), name
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    for name, one in found.items():
        sizes = [
            one["parameters"],
            one["frozen_parameters"],
            *(one["parts"][part] for part in ("vision", "language", "action")),
        ]
        millions = " | ".join(f"{size / 1e6:.1f} M" for size in sizes)
        assert f"| {name} | {millions} | {one['tokens_per_sample']} | {one['training_flops'] / 1e12:.2f} |" in readme
    text = printed("models", "cogact")
    assert "7478.7" in text and "zero3" in text and "pi05" not in text


def test_export_writes_a_policy_that_acts_alike(policy, tmp_path):
    out = tmp_path / "again"
    answer = json.loads(
        printed("convert", str(policy), "--format", "harness", "-o", str(out), "--shard-gb", "0.001", "--json")
    )
    assert [Path(file).name for file in answer["files"]] == ["model.safetensors"]
    first, second = (load_file(folder / "model.safetensors") for folder in (policy, out))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    CheckpointPolicy(out)
    with pytest.raises(BadInput, match="a new or empty folder"):
        printed("convert", str(policy), "--format", "harness", "-o", str(out))


def test_export_says_what_it_cannot_name(policy, tmp_path):
    with pytest.raises(BadInput, match='did you mean "dexbotic-cogact"'):
        printed("convert", str(policy), "--format", "dexbotic-cogakt", "-o", str(tmp_path / "x"))
    with pytest.raises(BadInput, match=r"has no names for vision\.convolutions"):
        printed("convert", str(policy), "--format", "dexbotic-cogact", "-o", str(tmp_path / "x"))
    with pytest.raises(BadInput, match="expected a format of CogAct"):
        printed("convert", str(policy), "--format", "lerobot-pi0", "-o", str(tmp_path / "x"))
    with pytest.raises(BadInput, match="fp32"):
        printed("models", "--precision", "fp8")
