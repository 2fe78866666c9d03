"""The contract between a model and the backends, checked without a launch: one process, seconds at size tiny.

Each rule is a small function with a name; its docstring says where the rule comes from.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.models.base import VLA
from harness.validate.findings import Finding
from harness.validate.subject import Subject
from harness.validate.weights import never_receives_gradient

Rule = Callable[[Subject], list[Finding]]

RULES: tuple[Rule, ...] = (never_receives_gradient,)


def check_model(build: Callable[[], VLA]) -> list[Finding]:
    """Everything the rules find in a model, errors first; empty when it keeps the contract.

    Args:
        build: makes the model anew, on torch's current default device (`partial(harness.models.build, name, size)`).

    Raises:
        BadInput: as `harness.models.build` does, or the profile names a class that the model does not contain.
    """
    subject = Subject(build)
    found = [finding for rule in RULES for finding in rule(subject)]
    order = ("error", "warning", "note")
    return sorted(found, key=lambda finding: order.index(finding.severity))
