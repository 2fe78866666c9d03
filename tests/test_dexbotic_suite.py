"""`suites/dexbotic.toml` says what Dexbotic's own files say, model by model."""

from pathlib import Path

import pytest

from harness.errors import BadInput
from harness.plan import Cell, Plan, RunKind
from harness.planning import make_plan
from harness.suite_file import load_suite
from harness.train.schedule import learning_rate

SUITE = Path(__file__).parents[1] / "suites" / "dexbotic.toml"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan("dexbotic", load_suite(SUITE), "8x-gpu", cuda=True)


def test_every_model_is_planned_under_each_backend(plan):
    assert not plan.unsupported
    labels = [
        f"{model}-{backend}" for model in ("pi0", "pi05", "dm0", "cogact") for backend in ("zero3", "zero2", "fsdp2")
    ]
    assert [run.cell.label for run in plan.runs if run.kind is RunKind.TIMING and run.repeat == 0] == labels
    assert not plan.needs_demonstrations and plan.data.path == "data/libero/libero_pi0_all"


@pytest.mark.parametrize(
    ("model", "batch", "steps", "first", "peak", "last", "normalisation", "delta"),
    [
        ("pi0", 32, 30_000, 2.5e-8, 2.5e-5, 2.5e-6, "z-score", True),
        ("pi05", 64, 30_000, 5e-9, 5e-5, 5e-5, "z-score", False),
        ("dm0", 64, 80_000, 5e-8, 5e-5, 5e-6, "z-score", True),
        ("cogact", 128, 53_000, 2e-5, 2e-5, 0.0, "clipped-quantile", False),
    ],
)
def test_settings_of_each_model(plan, model, batch, steps, first, peak, last, normalisation, delta):
    run = next(run for run in plan.runs if run.kind is RunKind.LEARNING and run.cell.label == f"{model}-zero3")
    cell: Cell = run.cell
    assert (cell.samples_per_step, run.steps, cell.size, cell.precision, cell.clip) == (
        batch,
        steps,
        "full",
        "bf16",
        1.0,
    )
    rates = [
        learning_rate(cell.optimizer, step, steps) for step in (0, max(cell.optimizer.warmup_steps - 1, 0), steps - 1)
    ]
    assert rates == pytest.approx([first, peak, last])
    assert (cell.data.normalisation, cell.data.delta_actions) == (normalisation, delta)
    assert cell.data.tokenizer is not None
    assert cell.activation_checkpointing == (model == "cogact")


def test_a_model_may_learn_for_its_own_number_of_steps():
    with pytest.raises(BadInput, match=r"models\.pi0\.learning_steps = 0"):
        load_suite(SUITE, ["models.pi0.learning_steps=0"])
    short = make_plan("dexbotic", load_suite(SUITE, ["models.pi0.learning_steps=7"]), "8x-gpu", cuda=True)
    steps = {run.cell.label: run.steps for run in short.runs if run.kind is RunKind.LEARNING}
    assert steps["pi0-zero3"] == 7 and steps["dm0-zero3"] == 80_000
