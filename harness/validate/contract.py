"""The contract between a model and the backends, checked without a launch: one process, seconds at size tiny.

Each rule is a small function with a name; its docstring says where the rule comes from.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.models.base import VLA
from harness.validate import advice, forwards, initialisation, sources, weights
from harness.validate.findings import Finding
from harness.validate.subject import Subject

Rule = Callable[[Subject], list[Finding]]

RULES: tuple[Rule, ...] = (
    forwards.runs,
    initialisation.weights_follow_seed,
    initialisation.meta_initialisation,
    sources.own_sources,
    weights.own_optimizer,
    weights.never_receives_gradient,
    weights.gradient_around_output,
    weights.tied_weights,
    weights.mixed_unit_dtypes,
    weights.large_persistent_buffers,
    forwards.draws_elsewhere,
    forwards.direct_forward,
    forwards.direct_forward_inside,
    forwards.reads_inside_layers,
    forwards.mixed_dtypes,
    forwards.mixed_devices,
    forwards.loss_in_float32,
    advice.root_alone,
)


def check_model(build: Callable[[], VLA]) -> list[Finding]:
    """Everything the rules find in a model, errors first; empty when it keeps the contract.

    Args:
        build: makes the model anew, on torch's current default device (`partial(harness.models.build, name, size)`).
            Up to three copies are alive at once, on the CPU: take a small size. There must be no process group.

    Raises:
        BadInput: as `harness.models.build` does, or the profile names a class that the model does not contain.
    """
    subject = Subject(build)
    found = [finding for rule in RULES for finding in rule(subject)]
    if not any(finding.severity == "error" for finding in found):
        found += forwards.shards(subject)  # what an error above may well be the cause of is no news
    order = ("error", "warning", "note")
    return sorted(found, key=lambda finding: order.index(finding.severity))
