"""From what is asked of `harness validate` to a plan: short runs of every model under every backend on every stack."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from harness.backends.options import VARIANTS
from harness.errors import BadInput
from harness.machine import Fingerprint
from harness.plan import Plan
from harness.planning import make_plan
from harness.suite_file import suite_from
from harness.validate.records import Row, Validation

SUITE = "validate"
"""What results of validations are filed under."""
STACKS = ("native", "trainer")
REFERENCE = "ddp"
"""Whose losses, on the native stack, all others are held against."""
STEPS, CHECKPOINT_STEP = 8, 4
"""A run of so many steps, resumed from its middle: the first step after it shows the weights alone, Adam's moments
show from the second one on."""

_SETTINGS = {
    "micro_batch": 2,
    "accumulation": 2,
    # Adam divides by the gradient's size plus eps: a large eps keeps the noise of zero gradients out of the weights.
    "optimizer": {"name": "adamw", "lr": 1e-3, "eps": 1e-4},
}


@dataclass(frozen=True)
class ValidationRequest:
    """What to validate, as typed."""

    models: list[str]
    size: str
    backends: list[str]
    stacks: list[str]
    precision: str = "fp32"
    ranks: int = 2
    sets: list[str] = field(default_factory=list)
    """`key=value` strings for the suite that is made of all this, as `harness run --set` takes them."""


def planned(request: ValidationRequest, machine: Fingerprint) -> tuple[Validation, Plan]:
    """The rows that are asked for, and the runs they need. Each model's reference run is always among these.

    Raises:
        BadInput: there is no such model, size, backend or stack, or `sets` do not fit a suite.
    """
    for option, names, known in (
        ("--backend", request.backends, VARIANTS),
        ("--stack", request.stacks, STACKS),
    ):
        for name in names:
            if name not in known:
                raise BadInput(option, None, name, "one of", known)
    suite = suite_from("harness validate", _tables(request), request.sets)
    plan = make_plan(SUITE, suite, machine.hardware_key, bool(machine.gpus))
    rows = [
        Row(label=f"{suite_key(model)}-{cell_key(backend, stack)}", model=model, backend=backend, stack=stack)
        for model in request.models
        for backend in request.backends
        for stack in request.stacks
    ]
    return Validation(rows=rows, versions=machine.versions), plan


def _tables(request: ValidationRequest) -> dict[str, Any]:
    pairs = [(REFERENCE, "native"), *((backend, stack) for backend in request.backends for stack in request.stacks)]
    backends = {cell_key(*pair): VARIANTS[pair[0]].model_dump() | {"stack": pair[1]} for pair in pairs}
    return {
        "models": {suite_key(model): {"model": model, "size": request.size} for model in request.models},
        "backends": backends,
        "defaults": _SETTINGS | {"precision": request.precision, "ranks": request.ranks},
        "data": {"source": "synthetic"},
        "learning": {"backends": list(backends), "steps": STEPS, "checkpoint_every": CHECKPOINT_STEP},
    }


def suite_key(model: str) -> str:
    """A model's name as a key of a suite: "package.module:function" as package_module_function."""
    return re.sub(r"\W", "_", model)


def cell_key(backend: str, stack: str) -> str:
    """The key of a backend on a stack among the suite's backends."""
    return f"{backend.replace('-', '_')}_{stack}"
