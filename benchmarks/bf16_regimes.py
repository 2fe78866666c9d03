"""What the regimes of bf16 differ by: losses and gradient norms of one model from one seed, over a few steps.

    python benchmarks/bf16_regimes.py             # nine minutes on 2 cores that had other work
    python benchmarks/bf16_regimes.py --steps 60

Every row is a fresh process group. A regime is what the run read back from its live objects: the dtype of the forward,
of autocast, of the weights that the optimizer updates, and of the reduction of gradients. Differences are the largest
from the row that is named as the reference. The optimizer's epsilon is 1e-4, which no gradient that is nothing but
rounding reaches.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.machine import fingerprint
from harness.plan import Cell, PlannedRun, RunKind
from harness.train.facts import InForce
from harness.train.launch import launch, read_steps
from harness.train.records import Outcome, RunSpec

NO_MASTERS = {"profile": {"cast_model_to_bf16_backends": ["fsdp2"]}}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "DDP": ("DDP", {"backend": {"backend": "ddp"}}),
    "DDP in fp32": ("DDP", {"backend": {"backend": "ddp"}, "precision": "fp32"}),
    "DDP through the Trainer": ("DDP", {"backend": {"backend": "ddp"}, "stack": "trainer"}),
    "FSDP": ("DDP", {"backend": {"backend": "fsdp"}}),
    "FSDP2": ("DDP", {"backend": {"backend": "fsdp2"}}),
    "FSDP2 through the Trainer": ("DDP", {"backend": {"backend": "fsdp2"}, "stack": "trainer"}),
    "FSDP2, gradients reduced in bfloat16": ("DDP", {"backend": {"backend": "fsdp2", "reduce_dtype": "bf16"}}),
    "FSDP2, no masters": ("DDP", {"backend": {"backend": "fsdp2"}} | NO_MASTERS),
    "ZeRO-2": ("DDP", {"backend": {"backend": "deepspeed", "zero_stage": 2}}),
    "ZeRO-1": ("ZeRO-2", {"backend": {"backend": "deepspeed", "zero_stage": 1}}),
    "ZeRO-3": ("ZeRO-2", {"backend": {"backend": "deepspeed", "zero_stage": 3}}),
    "ZeRO-3, own linear layers off": (
        "ZeRO-2",
        {"backend": {"backend": "deepspeed", "zero_stage": 3, "memory_efficient_linear": False}},
    ),
}
"""Row → the row that it is held against, and what its cell has of its own. A reference comes before what needs it."""
SEED, HANG_SECONDS = 3, 900.0


@dataclass(frozen=True)
class Row:
    """One run."""

    regime: str
    losses: list[float]
    norms: list[float]


@dataclass(frozen=True)
class Drift:
    """The largest differences between two runs."""

    first_loss: float
    loss: float
    relative_norm: float


def drift(row: Row, reference: Row) -> Drift:
    return Drift(
        first_loss=abs(row.losses[0] - reference.losses[0]),
        loss=max(abs(a - b) for a, b in zip(row.losses, reference.losses, strict=True)),
        relative_norm=max(abs(a - b) / b for a, b in zip(row.norms, reference.norms, strict=True)),
    )


def measure(name: str, options: argparse.Namespace, folder: Path) -> Row:
    """Raises SystemExit when the run does not end well."""
    order = spec(name, options, folder / name.replace(" ", "-"))
    record = launch(order, fingerprint(), hang_seconds=HANG_SECONDS, on_step=lambda _row: None)
    if record.outcome is not Outcome.OK or record.in_force is None:
        raise SystemExit(f"{name}: {record.outcome}: {record.failure and record.failure.reason}")
    steps = read_steps(Path(order.folder))
    return Row(regime(record.in_force), [step.loss for step in steps], [step.gradient_norm for step in steps])


def regime(force: InForce) -> str:
    """Forward, autocast, masters, reduction."""
    return f"{force.parameter_dtype}, {force.autocast_dtype or '–'}, {force.master_dtype}, {force.reduce_dtype}"


def spec(name: str, options: argparse.Namespace, folder: Path) -> RunSpec:
    cell = Cell.model_validate(
        {
            "label": name,
            "model": options.model,
            "size": options.size,
            "micro_batch": options.micro_batch,
            "precision": "bf16",
            "optimizer": {"eps": 1e-4},
            "data": {"source": "synthetic"},
        }
        | ROWS[name][1]
    )
    run = PlannedRun(
        cell=cell, kind=RunKind.LEARNING, repeat=0, training_seed=SEED, steps=options.steps, warmup_steps=2
    )
    return RunSpec(run=run, attempt=1, seed=SEED, folder=str(folder), data_folder=None, resume_from=None)


def table(rows: dict[str, Row]) -> str:
    lines = [
        "| backend | forward, autocast, masters, reduction | held against | first loss | any loss | norm, relative |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        reference = ROWS[name][0]
        found = drift(row, rows[reference])
        lines.append(
            f"| {name} | {row.regime} | {'' if name == reference else reference} | "
            f"{found.first_loss:.1e} | {found.loss:.1e} | {found.relative_norm:.0e} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pi0")
    parser.add_argument("--size", default="micro")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--micro-batch", type=int, default=4)
    options = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory(prefix="harness-bf16-") as folder:
        for name in ROWS:
            rows[name] = measure(name, options, Path(folder))
            print(f"{name}: losses {rows[name].losses[0]:.4f} to {rows[name].losses[-1]:.4f}", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
