"""Which part of a suite is wanted: what the command line names, else what the suite itself proposes, else all of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.errors import BadInput
from harness.suite import Selection, Suite

ALL = "all"
"""Said in place of names: the whole suite, whatever it proposes."""


def selected(suite: Suite, models: str | None = None, backends: str | None = None) -> Suite:
    """The suite with some of its models and backends.

    Args:
        models: names separated by commas, or "all"; None: the suite's `selection`, or all where it has none.
        backends: likewise.

    Raises:
        BadInput: the suite has no model or backend of that name.
    """
    proposed = suite.selection or Selection(models=list(suite.models), backends=list(suite.backends))
    chosen = _names(models, suite.models, proposed.models, "--models")
    narrowed = suite.model_copy(update={"models": {name: suite.models[name] for name in chosen}})
    return _only_backends(narrowed, _names(backends, suite.backends, proposed.backends, "--backends"))


def _names(text: str | None, known: Iterable[str], proposed: list[str], option: str) -> list[str]:
    if text is None:
        return proposed
    names = list(known) if text.strip() == ALL else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise BadInput(option, None, name, "names in the suite, or all", known)
    return names


def _only_backends(suite: Suite, names: list[str]) -> Suite:
    """Narrows to some backends. The reference stays: a speedup without it would be a number against nothing."""
    if suite.throughput and suite.throughput.reference not in names:
        names = [suite.throughput.reference, *names]
    changes: dict[str, Any] = {"backends": {name: entry for name, entry in suite.backends.items() if name in names}}
    if suite.learning:
        kept = [name for name in suite.learning.backends if name in names]
        changes["learning"] = suite.learning.model_copy(update={"backends": kept}) if kept else None
    return suite.model_copy(update=changes)
