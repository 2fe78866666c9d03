import subprocess
import sys
from typing import Any

import pytest

from harness.backends.support import unsupported
from harness.plan import Cell


def cell(backend: str = "ddp", /, **settings: Any) -> Cell:
    plain = {"label": "x", "model": "pi0", "size": "tiny", "backend": {"backend": backend}, "data": {}}
    return Cell.model_validate(plain | settings)


@pytest.fixture(autouse=True)
def a_new_torch(monkeypatch):
    """What is tested does not depend on what is installed, but for the tests that set a version of their own."""
    monkeypatch.setattr("harness.backends.support.version", lambda name: "9.9.9")


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("backend", ["ddp", "fsdp", "fsdp2", "deepspeed"])
def test_every_backend_runs_in_both_regimes(backend, precision, cuda):
    assert unsupported(cell(backend, precision=precision), cuda) is None


@pytest.mark.parametrize("backend", ["ddp", "fsdp", "fsdp2", "deepspeed"])
def test_activation_checkpointing_with_bf16_is_refused_for_ddp_alone(backend):
    reason = unsupported(cell(backend, precision="bf16", activation_checkpointing=True), cuda=False)
    assert (reason is not None) == (backend == "ddp")
    assert unsupported(cell(backend, activation_checkpointing=True), cuda=False) is None


def test_raw_layout_is_for_the_models_whose_layers_dexbotic_reads():
    assert unsupported(cell("fsdp2", model="dm0", layout="raw"), cuda=False) is None
    assert "cogact calls its layers" in (unsupported(cell("fsdp2", model="cogact", layout="raw"), cuda=False) or "")


def test_fsdp1_needs_two_ranks():
    assert "NO_SHARD" in (unsupported(cell("fsdp", ranks=1), cuda=True) or "")
    assert unsupported(cell("fsdp2", ranks=1), cuda=True) is None


RECOMPUTE = {"activation_checkpointing": True}
LIMITS = [
    ({"backend": {"backend": "fsdp2", "tensor_parallel": 2}}, "tensor-parallel axis"),
    ({"backend": {"backend": "fsdp2", "replicas": 2}, "ranks": 3}, "groups of equal size"),
    ({"backend": {"backend": "fsdp2", "reshard_after_forward": 3}, "ranks": 4}, "must divide"),
    ({"backend": {"backend": "deepspeed", "zero_stage": 2, "offload_parameters": True}}, "only ZeRO-3"),
    ({"backend": {"backend": "fsdp2", "wrap": "root"}, "stack": "trainer"} | RECOMPUTE, "under the root"),
    ({"backend": {"backend": "fsdp2", "replicas": 2}, "stack": "trainer"}, "one mesh dimension"),
    ({"backend": {"backend": "fsdp2", "reshard_after_forward": 2}, "stack": "trainer"}, "true or false"),
    ({"backend": {"backend": "fsdp2", "meta_init": True}, "stack": "trainer"}, "cpu_ram_efficient_loading"),
    ({"backend": {"backend": "fsdp2", "cpu_offload": True}, "stack": "trainer"}, "pinned memory"),
    ({"backend": {"backend": "ddp"}, "stack": "external"}, "entry"),
    ({"backend": {"backend": "ddp"}, "entry": ["train.py"]}, "entry"),
]


@pytest.mark.parametrize(("settings", "reason"), LIMITS, ids=[reason for _, reason in LIMITS])
def test_what_cannot_be_has_its_reason(settings, reason):
    assert reason in (unsupported(cell(**settings), cuda=False) or "")


@pytest.mark.parametrize("backend", ["ddp", "fsdp", "fsdp2", "deepspeed"])
def test_every_backend_runs_on_the_trainer(backend):
    assert unsupported(cell(backend, stack="trainer"), cuda=False) is None


def test_old_torch_is_said_at_once(monkeypatch):
    monkeypatch.setattr("harness.backends.support.version", lambda name: "2.5.1+cpu")
    assert unsupported(cell("ddp"), cuda=False) == "torch 2.5.1+cpu is older than 2.6"


def test_fsdp2_of_torch_2_6_needs_a_gpu(monkeypatch):
    monkeypatch.setattr("harness.backends.support.version", lambda name: "2.6.0+cpu")
    for stack in ("native", "trainer"):
        assert "on a CPU 2.7 does" in (unsupported(cell("fsdp2", stack=stack), cuda=False) or "")
        assert unsupported(cell("fsdp2", stack=stack), cuda=True) is None
    assert unsupported(cell("fsdp"), cuda=False) is None


def test_planning_needs_no_torch():
    code = "import sys, harness.backends.support, harness.planning; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
