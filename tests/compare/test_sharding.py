"""Each rank holds its part only, or the cell is INCOMPARABLE: by formula, and with real engines that shard nothing."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from comparison_records import a_run

from harness.backends.footprint import STRATEGIES, Strategy, static_bytes, strategy_of
from harness.backends.options import VARIANTS
from harness.compare.sharding import divided, judge_sharding
from harness.compare.verdict import Judgement, Verdict
from harness.plan import Cell
from harness.train.facts import ShardBytes
from harness.train.records import RunRecord

DIVIDED = {
    "ddp": [],
    "fsdp": ["parameter_bytes", "optimizer_bytes", "gradient_bytes"],
    "fsdp2": ["parameter_bytes", "optimizer_bytes", "gradient_bytes"],
    "zero1": ["optimizer_bytes"],
    "zero2": ["optimizer_bytes", "gradient_bytes"],
    "zero3": ["parameter_bytes", "optimizer_bytes", "gradient_bytes"],
}
N, T = 47_207, 38_983
RANKS = 4


def a_cell(backend: str, **settings: Any) -> Cell:
    plain = {
        "label": backend, "model": "pi0", "size": "tiny", "ranks": RANKS, "micro_batch": 2,
        "backend": VARIANTS[backend].model_dump(), "data": {"source": "synthetic"},
    }  # fmt: skip
    return Cell.model_validate(plain | settings)


def holding(cell: Cell, shards: list[ShardBytes]) -> RunRecord:
    run = a_run("zero3")
    assert run.workload and run.in_force and run.memory
    return run.model_copy(
        update={
            "run": run.run.model_copy(update={"cell": cell}),
            "workload": run.workload.model_copy(update={"parameters": N, "trainable_parameters": T}),
            "in_force": run.in_force.model_copy(update={"world_size": cell.ranks}),
            "memory": run.memory.model_copy(update={"shards": shards}),
        }
    )


def judged(cell: Cell, shards: list[ShardBytes]) -> Judgement | None:
    return judge_sharding(cell.label, [holding(cell, shards)])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_cell_that_holds_what_its_formula_says_passes(strategy: Strategy, precision: Any) -> None:
    cell = a_cell(strategy, precision=precision)
    assert strategy_of(cell.backend) == strategy
    found = judged(cell, [static_bytes(strategy, precision, N, T, RANKS)] * RANKS)
    if strategy == "ddp":
        assert found is None
    else:
        assert found is not None and found.verdict is Verdict.PASS
        assert found.value == pytest.approx(1 / RANKS, rel=1e-3)


@pytest.mark.parametrize(("strategy", "field"), [(name, field) for name in STRATEGIES for field in DIVIDED[name]])
def test_a_part_that_is_not_sharded_is_caught_and_named(strategy: Strategy, field: str) -> None:
    good, whole = (static_bytes(strategy, "fp32", N, T, ranks) for ranks in (RANKS, 1))
    bad = good.model_copy(update={field: getattr(whole, field)})
    found = judged(a_cell(strategy), [bad] * RANKS)
    assert found is not None and found.verdict is Verdict.INCOMPARABLE
    assert (found.metric, found.value) == (field, 1.0)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "ddp"])
def test_one_rank_that_holds_all_is_no_sharding(strategy: Strategy) -> None:
    good, whole = (static_bytes(strategy, "fp32", N, T, ranks) for ranks in (RANKS, 1))
    found = judged(a_cell(strategy), [whole, *[good] * (RANKS - 1)])
    assert found is not None and found.verdict is Verdict.INCOMPARABLE


def test_only_what_a_backend_divides_is_asked_for() -> None:
    shards = [static_bytes("ddp", "fp32", N, T, 1)] * RANKS
    assert {name: [p.field for p in divided(a_cell(name), N, T, shards)] for name in STRATEGIES} == DIVIDED


def simulated(cell: Cell) -> list[ShardBytes]:
    """What the real engine holds as the first of so many ranks."""
    from harness.simulate.engines import count

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counted = count(cell)
    return [counted.shard.model_copy(update={"gradient_bytes": counted.kept_gradient_bytes})] * cell.ranks


@pytest.mark.full
def test_fsdp2_engines_that_shard_and_one_that_only_replicates() -> None:
    cell = a_cell("fsdp2")
    sharded = judged(cell, simulated(cell))
    assert sharded is not None and sharded.verdict is Verdict.PASS
    replicated = simulated(cell.model_copy(update={"backend": cell.backend.model_copy(update={"replicas": RANKS})}))
    found = judged(cell, replicated)
    assert found is not None and found.verdict is Verdict.INCOMPARABLE
    assert "a rank holds 100% of the parameters" in found.reason
    assert "does not shard its parameters, optimizer state" in found.reason


@pytest.mark.full
def test_fsdp1_engines_that_shard_and_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.fsdp import ShardingStrategy

    import harness.backends.fsdp as subject

    cell = a_cell("fsdp")
    sharded = judged(cell, simulated(cell))
    assert sharded is not None and sharded.verdict is Verdict.PASS
    real = subject.FullyShardedDataParallel

    class Replicating(real):  # type: ignore[misc,valid-type]
        def __init__(self, module: Any, **settings: Any) -> None:
            super().__init__(module, **settings | {"sharding_strategy": ShardingStrategy.NO_SHARD})

    monkeypatch.setattr(subject, "FullyShardedDataParallel", Replicating)
    found = judged(cell, simulated(cell))
    assert found is not None and found.verdict is Verdict.INCOMPARABLE
