import subprocess
import sys
from typing import Any

import pytest

from harness.backends.support import unsupported
from harness.plan import Cell


def cell(backend: str, **settings: Any) -> Cell:
    plain = {"label": "x", "model": "pi0", "size": "tiny", "backend": {"backend": backend}, "data": {}}
    return Cell.model_validate(plain | settings)


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


def test_fsdp1_needs_two_ranks():
    assert "NO_SHARD" in (unsupported(cell("fsdp", ranks=1), cuda=True) or "")
    assert unsupported(cell("fsdp2", ranks=1), cuda=True) is None


def test_planning_needs_no_torch():
    code = "import sys, harness.backends.support, harness.plan; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
