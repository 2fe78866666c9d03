"""What is written into DeepSpeed's config; nothing here starts DeepSpeed."""

from typing import Any

import pytest

from harness.backends.deepspeed import config_of
from harness.plan import Cell


def cell(stage: int = 2, options: dict[str, Any] | None = None, **settings: Any) -> Cell:
    backend = {"backend": "deepspeed", "zero_stage": stage} | (options or {})
    plain = {"label": "x", "model": "pi0", "size": "tiny", "backend": backend, "data": {"source": "synthetic"}}
    return Cell.model_validate(plain | settings)


@pytest.mark.parametrize("clip", [0.0, 1.0, 2.5])
def test_clipping_is_always_written_out(clip):
    assert config_of(cell(clip=clip), on_cuda=False)["gradient_clipping"] == clip


def test_batch_is_the_cells():
    config = config_of(cell(micro_batch=3, accumulation=5), on_cuda=False)
    assert (config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]) == (3, 5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_reduction_is_float32_in_both_regimes(precision):
    config = config_of(cell(precision=precision), on_cuda=False)
    assert config["bf16"]["enabled"] == (precision == "bf16")
    assert config["communication_data_type"] == "fp32"
    assert config["data_types"]["grad_accum_dtype"] == "fp32"


def test_buckets_and_thresholds_are_never_defaults():
    options = {"reduce_bucket_size": 11, "allgather_bucket_size": 12, "memory_efficient_linear": False}
    zero = config_of(cell(3, options), on_cuda=True)["zero_optimization"]
    assert zero["stage"] == 3
    assert (zero["reduce_bucket_size"], zero["allgather_bucket_size"]) == (11, 12)
    assert zero["stage3_param_persistence_threshold"] == 0
    assert zero["stage3_max_live_parameters"] == 1_000_000
    assert zero["memory_efficient_linear"] is False
    assert zero["overlap_comm"] is True


def test_stage_three_options_stay_out_of_lower_stages():
    assert not any(key.startswith("stage3") for key in config_of(cell(2), on_cuda=False)["zero_optimization"])
