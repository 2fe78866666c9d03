"""Rules on source text: a script or a model's file that breaks each, and what is right although it looks the same."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch
from sound_model import Sound
from torch.distributed.fsdp import fully_shard
from typer.testing import CliRunner

from harness.backends.optimizer import foreign_parameters
from harness.cli import app
from harness.errors import BadInput
from harness.validate.contract import check_model
from harness.validate.findings import Finding
from harness.validate.sources import check_script

SCRIPT = """import os
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    model = build().to(device)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch in data:
        loss = model(batch)
        loss.backward()
        optimizer.step()
    whole = get_model_state_dict(model, options=whole_options)
    if dist.get_rank() == 0:
        torch.save(whole, "model.pt")
        torch.save({"step": 1, "schedule": scheduler.state_dict()}, "loop.pt")
"""
"""Right in every respect; each test below changes one thing."""


def found_in(tmp_path, text: str) -> list[tuple[str, str, int]]:
    """Rule, severity and line of each finding."""
    script = tmp_path / "train.py"
    script.write_text(text)
    found = check_script(script)
    assert all(one.where == "train.py" for one in found)
    return [(one.rule, one.severity, int(one.line.rpartition(":")[2])) for one in found]


def changed(old: str, new: str) -> str:
    assert SCRIPT.count(old) == 1
    return SCRIPT.replace(old, new)


def test_a_sound_script(tmp_path):
    assert found_in(tmp_path, SCRIPT) == []


LAYERS = "    for layer in model.layers:\n"
LOOP = "    for batch in data:\n"
DEVICE = '"cuda", int(os.environ["LOCAL_RANK"])'
GATHERED = "get_model_state_dict(model, options=whole_options)"


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        (DEVICE, '"cuda:0"', ("fixed-device", "error", 8)),
        (DEVICE, '"cuda", 0', ("fixed-device", "error", 8)),
        (".to(device)", ".cuda(0)", ("fixed-device", "error", 11)),
        ("set_device(device)", "set_device(0)", ("fixed-device", "error", 9)),
        ("loss = model(batch)", "loss = model.forward(batch)", ("direct-forward", "error", 17)),
        ("torch.save(whole,", "torch.save(model.state_dict(),", ("unsharded-save", "error", 22)),
        ("torch.save(whole,", 'torch.save({"model": model.state_dict()},', ("unsharded-save", "error", 22)),
        (GATHERED, "model.state_dict()", ("unsharded-save", "error", 22)),
        (f"{LAYERS}        fully_shard(layer)\n", "", ("root-alone", "warning", 12)),
        (LAYERS, f"    optimizer = SGD(model.parameters())\n{LAYERS}", ("optimizer-before-sharding", "error", 12)),
        (LAYERS, f"    fully_shard(model)\n{LAYERS}", ("root-first", "error", 12)),
        ('    dist.init_process_group("nccl")\n', "", ("no-process-group", "error", 1)),
        (LOOP, f"    keys = out.past_key_values[0][0]\n{LOOP}", ("legacy-cache", "error", 16)),
    ],
)
def test_one_thing_wrong(tmp_path, old, new, finding):
    assert finding in found_in(tmp_path, changed(old, new))


def test_nothing_but_that_one_thing_is_found(tmp_path):
    assert found_in(tmp_path, changed("torch.save(whole,", "torch.save(model.state_dict(),")) == [
        ("unsharded-save", "error", 22)
    ]


def test_one_device_for_all_processes(tmp_path):
    text = changed('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', '"cuda"')
    text = text.replace("    torch.cuda.set_device(device)\n", "")
    assert found_in(tmp_path, text) == [("fixed-device", "error", 8)]


@pytest.mark.parametrize(
    "text",
    [
        "from transformers import Trainer\nTrainer(model).train()\n",
        changed("        loss = model(batch)", "        model.unshard()\n        loss = model.forward(batch)"),
        changed(LOOP, f'    register_fsdp_forward_method(model, "forward")\n{LOOP}').replace(
            "model(b", "model.forward(b"
        ),
        changed(
            "        torch.save(whole,",
            "        with FSDP.state_dict_type(model, FULL):\n            state = model.state_dict()\n"
            "        torch.save(state,",
        ),
        changed(LOOP, f"    keys, values = past_key_values.update(keys, values, 0)\n{LOOP}"),
        changed(f"{LAYERS}        fully_shard(layer)", "    [fully_shard(layer) for layer in model.layers]"),
        changed(LAYERS, f"    fully_shard(model.embed)\n{LAYERS}"),
    ],
)
def test_what_is_allowed_is_not_found(tmp_path, text):
    assert found_in(tmp_path, text) == []


def test_a_script_that_is_not_there_or_is_no_python(tmp_path):
    with pytest.raises(BadInput, match="expected a training script"):
        check_script(tmp_path / "gone.py")
    (tmp_path / "odd.py").write_text("def main(:\n")
    with pytest.raises(BadInput, match=r"odd\.py.*expected Python, but: .*line 1"):
        check_script(tmp_path / "odd.py")


def test_the_command_reads_scripts_and_ends_with_what_it_found(tmp_path):
    (tmp_path / "bad.py").write_text("import torch\nmodel.to('cuda:0')\n")
    (tmp_path / "good.py").write_text("from transformers import Trainer\nTrainer(model).train()\n")
    good, bad, both = (
        CliRunner().invoke(app, ["validate", *names])
        for names in ([f"{tmp_path}/good.py"], [f"{tmp_path}/bad.py"], [f"{tmp_path}/good.py", "pi0"])
    )
    assert (good.exit_code, bad.exit_code) == (0, 12)
    assert "it keeps the contract" in good.output and "error: fixed-device, where: bad.py" in bad.output
    assert isinstance(both.exception, BadInput) and "training scripts alone" in str(both.exception)


MODEL = """import torch
from torch import nn
from sound_model import WIDTH, Block, Sound

class Layer(Block):
    def forward(self, x, past_key_values=None):
        if past_key_values is not None:
            x = WRONG
        return super().forward(x)

class Model(Sound):
    def block(self):
        return Layer()

Model.profile = type(Sound.profile)(("Layer",))
"""


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ("x + past_key_values[0][1]", "legacy-cache"),
        ("x + past_key_values.key_cache[0]", "legacy-cache"),
        ("x + past_key_values.to_legacy_cache()[0]", "legacy-cache"),
        ("x.cuda()", "fixed-device"),
        ('x.to("cuda")', "fixed-device"),
        ('x.to("cuda:0")', "fixed-device"),
        ('torch.zeros(3, device="cuda")', "fixed-device"),
        ('torch.save(self.state_dict(), "layer.pt")', "unsharded-save"),
        ("past_key_values.update(x, x, 0)[0]", None),
        ('x if x.device.type == "cuda" else -x', None),
    ],
)
def test_the_files_of_a_model(tmp_path, monkeypatch, wrong, rule):
    found = found_beside(tmp_path, monkeypatch, MODEL.replace("WRONG", wrong))
    assert [(one.rule, one.where, one.severity) for one in found] == ([(rule, "blocks.0", "error")] if rule else [])
    assert all(one.line.endswith("model_of_mine.py:8") for one in found)


def test_a_function_beside_the_model(tmp_path, monkeypatch):
    train = "\ndef train(model):\n    optimizer = torch.optim.SGD(model.parameters(), 1.0)\n    fully_shard(model)\n"
    (found,) = found_beside(tmp_path, monkeypatch, MODEL.replace("WRONG", "x") + train)
    assert (found.rule, found.where) == ("optimizer-before-sharding", "model_of_mine.py")


def found_beside(tmp_path, monkeypatch, text: str) -> list[Finding]:
    """What is found of `Model` in a file of this text."""
    (tmp_path / "model_of_mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        return check_model(importlib.import_module("model_of_mine").Model)
    finally:
        del sys.modules["model_of_mine"]


def test_an_optimizer_from_before_sharding_knows_none_of_the_parameters(one_rank):
    model = Sound()
    before = torch.optim.SGD(model.parameters(), lr=1.0)
    assert foreign_parameters(model, before) == []
    for layer in model.blocks:
        fully_shard(layer, mesh=one_rank)
    fully_shard(model, mesh=one_rank)
    assert len(foreign_parameters(model, before)) == len(list(model.parameters()))
    assert foreign_parameters(model, torch.optim.SGD(model.parameters(), lr=1.0)) == []
