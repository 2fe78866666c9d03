"""Which cells of a suite run: all that a suite names, and what it proposes when nobody chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import BadInput
from harness.plan import Plan, RunKind
from harness.planning import make_plan
from harness.selection import selected
from harness.suite import Suite
from harness.suite_file import load_suite, suite_from

SUITES = Path(__file__).parents[1] / "suites"
MODELS = ("pi0", "pi05", "dm0", "cogact")
BACKENDS = ("zero3", "zero2", "fsdp2", "ddp", "fsdp", "zero1")


def planned(name: str, models: str | None = None, backends: str | None = None, cuda: bool = False) -> Plan:
    return make_plan(name, selected(load_suite(SUITES / f"{name}.toml"), models, backends), "test", cuda)


def labels(plan: Plan) -> set[str]:
    return {run.cell.label for run in plan.runs} | {cell.label for cell in plan.unsupported}


def test_the_laptop_suite_has_every_model_under_every_backend() -> None:
    plan = planned("fsdp2", "all", "all")
    assert labels(plan) == {f"{model}-{backend}" for model in MODELS for backend in BACKENDS}
    assert not plan.unsupported
    assert {run.cell.size for run in plan.runs} == {"micro"}


def test_unasked_it_is_pi0_under_four_backends_as_ever() -> None:
    plan = planned("fsdp2")
    assert labels(plan) == {f"pi0-{backend}" for backend in BACKENDS[:4]}
    kinds = [run.kind for run in plan.runs]
    assert (kinds.count(RunKind.TIMING), kinds.count(RunKind.LEARNING)) == (4 * 5, 2)


def test_the_command_line_wins_over_the_proposal() -> None:
    assert labels(planned("fsdp2", models="dm0,cogact")) == {
        f"{model}-{backend}" for model in ("dm0", "cogact") for backend in BACKENDS[:4]
    }
    assert labels(planned("fsdp2", backends="fsdp")) == {"pi0-fsdp", "pi0-zero3"}, "the reference stays"


def test_the_learning_suite_asks_three_seeds_of_each_backend_and_whether_they_see() -> None:
    plan = planned("learn", models="pi0")
    assert [(run.kind, run.training_seed) for run in plan.runs if run.cell.label == "pi0-fsdp2"] == [
        (RunKind.LEARNING, seed) for seed in (0, 1, 2)
    ]
    kinds = [arm.name.partition(":")[2] for arm in plan.arms if arm.name.startswith("pi0-zero3-seed1")]
    assert kinds == ["", "no-images", "wrong-instruction"]
    assert {key.task for key in plan.episodes} == set(range(10))


def test_the_nightly_matrix_is_whole() -> None:
    plan = planned("nightly", cuda=True)
    cells = {f"{model}-{backend}{stack}" for model in MODELS for backend in BACKENDS for stack in ("", "_trainer")}
    assert labels(plan) == cells
    assert len(cells) == 48
    assert {cell.label for cell in plan.unsupported} == {"cogact-ddp", "cogact-ddp_trainer"}
    for run in plan.runs:
        assert (run.cell.size, run.cell.ranks, run.cell.precision) == ("full", 8, "bf16")
        assert run.cell.stack == ("trainer" if run.cell.label.endswith("_trainer") else "native")
        assert run.block is None, "one cell on the GPUs at a time"


TABLES = {
    "models": {"pi0": {"model": "pi0"}},
    "backends": {"ddp": {"backend": "ddp"}, "fsdp2": {"backend": "fsdp2"}},
}


def suite(**tables: object) -> Suite:
    return suite_from("suite.toml", TABLES | tables, [])


def test_without_a_proposal_all_of_a_suite_runs() -> None:
    assert selected(suite()) == suite()


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        ({"selection": {"models": ["pi"], "backends": ["ddp"]}}, "selection.models"),
        ({"selection": {"models": ["pi0"], "backends": ["dpp"]}}, "selection.backends"),
        ({"unsupported": {"pi0-dpp": "too large"}}, "unsupported"),
    ],
)
def test_a_suite_speaks_of_what_it_has(tables: dict[str, object], key: str) -> None:
    with pytest.raises(BadInput, match="did you mean") as found:
        suite(**tables)
    assert found.value.key == key


def test_a_name_that_is_not_there_is_said_with_the_nearest() -> None:
    with pytest.raises(BadInput, match='did you mean "fsdp2"'):
        selected(suite(), backends="fsd2")
