"""What the contract checks say of a model. No torch here."""

from __future__ import annotations

from typing import Literal

from harness.records import Value

Severity = Literal["error", "warning", "note"]


class Finding(Value):
    """One breach of the contract between a model and the backends.

    `error`: some backend fails or trains something else. `warning`: it works here, at a cost or by luck. `note`: for
    information.
    """

    rule: str
    where: str
    """Module path, as in `named_modules`; `(model)` for the root."""
    severity: Severity
    why: str
    """Why it matters, in a sentence."""
    change: str
    """What to change, in a sentence."""
    line: str | None = None
    """`file:line` of the code at fault, where there is one."""


ROOT = "(model)"


def place(path: str) -> str:
    """A module path as `Finding.where` says it: the root's own path is empty."""
    return path or ROOT
