"""A stranger adds a model: the code of docs/adding-a-model.md, as it stands there, from a folder of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_models import batch_of

from harness.backends.modules import weights_sha256
from harness.errors import BadInput
from harness.models import build, input_shape
from harness.models.flops import count
from harness.suite_file import load_suite

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-model.md"
MODEL = "my_models.regression:build"


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A folder with the files of the page, importable here and in child processes."""
    for text in re.findall(r"```(?:toml|python)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        name = re.match(r"# (\S+)\n", text)[1]
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "my_models"]:
        del sys.modules[name]


def test_it_is_built_and_keeps_what_the_page_asks_for(package):
    torch.manual_seed(0)
    model = build(MODEL, "small")
    assert input_shape(MODEL, "small") == model.shape
    batch = batch_of(model.shape)
    loss = model(batch)
    loss.backward()
    assert loss.dtype is torch.float32 and loss.shape == ()
    assert all(parameter.grad is not None for parameter in model.parameters())
    of_parts = [id(p) for modules in model.parts().values() for module in modules for p in module.parameters()]
    assert sorted(of_parts) == sorted(id(parameter) for parameter in model.parameters())
    assert model.sample(batch.observation, torch.Generator()).shape == (2, 10, 7)
    with torch.device("meta"):
        assert count(build(MODEL, "small")).forward == model.forward_flops()


def test_a_model_that_is_not_there_is_one_clear_error(package):
    with pytest.raises(BadInput, match=r"no_such_models:build.*installed, or on PYTHONPATH"):
        load_suite(package / "my_suite.toml", ["models.mine.model=no_such_models:build"])
    with pytest.raises(BadInput, match=r"models\.mine\.init = 'gone': expected a checkpoint"):
        load_suite(package / "my_suite.toml", ["models.mine.init=gone"])
    with pytest.raises(BadInput, match=r'did you mean "my_models\.regression:build"'):
        build("my_models.regression:biuld", "small")
    with pytest.raises(BadInput, match="a function that returns a VLA, not Config"):
        (package / "my_models" / "wrong.py").write_text(
            "from my_models.regression import SHAPE, Config\ndef build(size):\n    return Config(SHAPE, 1, 1)\n"
        )
        build("my_models.wrong:build", "small")


def test_it_runs_from_the_pages_suite_and_from_its_own_weights(package):
    torch.manual_seed(123)
    trained = build(MODEL, "small")
    save_file(trained.state_dict(), package / "model.safetensors")

    def harness(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "harness", *command],
            cwd=package, capture_output=True, text=True, timeout=590, check=False,
        )  # fmt: skip

    answer = harness("run", "my_suite.toml", "--json", "--set", "models.mine.init=model.safetensors")
    assert answer.returncode in (0, 11), answer.stderr
    record = json.loads(next(package.glob("results/my_suite/*/train/mine-fsdp2/*/attempt-1/run.json")).read_text())
    assert record["outcome"] == "OK"
    assert record["in_force"]["sharded_units"] == 3  # two blocks and the root
    assert record["workload"]["tokens_per_sample"] == 1
    assert record["workload"]["initial_weights_sha256"] == weights_sha256(trained)
