"""Options of one backend change where things lie and when they travel, not what is computed."""

from __future__ import annotations

import pytest
from stack_runs import backend_cell, together

RUN = {"steps": 8, "checkpoint_every": 8}
SETTINGS = {"accumulation": 2, "optimizer": {"eps": 1e-4}}

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

FSDP2 = {
    "hybrid": {"replicas": 2},
    "regathers from two ranks": {"reshard_after_forward": 2},
    "stays gathered": {"reshard_after_forward": False},
    "reshards everywhere": {"reshard_after_forward": True},
    "root alone": {"wrap": "root"},
    "meta": {"meta_init": True},
    "offload": {"cpu_offload": True},
    "output in fp32": {"output_dtype": "fp32", "cast_forward_inputs": True},
}


def test_fsdp2_on_four_ranks(tmp_path):
    settings = {"ranks": 4, "micro_batch": 2} | SETTINGS
    cells = {"ddp": backend_cell("ddp", **settings), "fsdp2": backend_cell("fsdp2", **settings)}
    for name, options in FSDP2.items():
        cells[name] = backend_cell("fsdp2", {"backend": "fsdp2"} | options, **settings)
    done = together(tmp_path, cells, **RUN)
    whole = 4 * done["ddp"].figures.workload.parameters
    for name, each in done.items():
        assert each.losses == pytest.approx(done["ddp"].losses, abs=1e-5), name
        assert each.norms == pytest.approx(done["ddp"].norms, rel=1e-5), name
        copies = {"ddp": 4, "hybrid": 2}.get(name, 1)
        held = sum(shard.parameter_bytes for shard in each.figures.memory.shards)
        assert held == pytest.approx(copies * whole, rel=0.05), name
    assert done["root alone"].figures.in_force.sharded_units == 1


def test_deepspeed_offloads_to_the_host(tmp_path):
    offloads = {
        "zero1": {"zero_stage": 1, "offload_optimizer": True},
        "zero2": {"zero_stage": 2, "offload_optimizer": True},
        "zero3": {"zero_stage": 3, "offload_optimizer": True, "offload_parameters": True},
    }
    cells = {"plain": backend_cell("zero2", **SETTINGS)}
    for name, options in offloads.items():
        cells[name] = backend_cell(name, {"backend": "deepspeed"} | options, **SETTINGS)
    cells["zero2 bf16"] = backend_cell(
        "zero2", {"backend": "deepspeed"} | offloads["zero2"], precision="bf16", **SETTINGS
    )
    done = together(tmp_path, cells, **RUN)
    for name, each in done.items():
        near = 0.05 if "bf16" in name else 1e-5
        assert each.losses == pytest.approx(done["plain"].losses, abs=near), name
        assert each.figures.in_force.master_dtype == "float32", name
