"""The formulas of static memory, against figures one can work out by hand."""

import pytest

from harness.backends.footprint import RANKS, STRATEGIES, static_bytes
from harness.train.facts import ShardBytes

N, T = 1000, 900


def shard(parameter: int, gradient: int, optimizer: int) -> ShardBytes:
    return ShardBytes(parameter_bytes=parameter, gradient_bytes=gradient, optimizer_bytes=optimizer)


@pytest.mark.parametrize(
    ("strategy", "precision", "expected"),
    [
        ("ddp", "fp32", shard(4000, 3600, 7200)),
        ("ddp", "bf16", shard(4000, 3600, 7200)),
        ("fsdp", "bf16", shard(2000, 1800, 3600)),
        ("fsdp2", "bf16", shard(2000, 1800, 3600)),
        ("zero1", "bf16", shard(2000, 3600, 5400)),
        ("zero2", "bf16", shard(2000, 1800, 5400)),
        ("zero3", "bf16", shard(1000, 1800, 5400)),
        ("zero3", "fp32", shard(2000, 1800, 5400)),
    ],
)
def test_two_ranks_by_hand(strategy, precision, expected):
    assert static_bytes(strategy, precision, N, T, 2) == expected


def test_more_ranks_never_hold_more():
    for strategy in STRATEGIES:
        sizes = [sum(dict(static_bytes(strategy, "bf16", 10**9, 10**9, ranks)).values()) for ranks in RANKS]
        assert sizes == sorted(sizes, reverse=True)
        assert (sizes[0] == sizes[-1]) == (strategy == "ddp")


def test_the_usual_rule_of_sixteen_bytes():
    """pi0's 3.24 billion parameters: 52 GB on one rank under every backend but ZeRO's, which has a bf16 copy more."""
    for strategy in STRATEGIES:
        whole = sum(dict(static_bytes(strategy, "bf16", 3_238_000_000, 3_238_000_000, 1)).values())
        assert whole / 1e9 == pytest.approx(58.3 if strategy.startswith("zero") else 51.8, abs=0.1)
