"""A plan over several hosts: what fits, in which order, filed where."""

from __future__ import annotations

import subprocess
from typing import Any

import native_runs as native
import pytest

from harness.machine import over_nodes
from harness.plan import Plan, RunKind
from harness.planning import make_plan
from harness.suite_file import suite_from

TABLES: dict[str, Any] = {
    "models": {"pi0": {"model": "pi0", "size": "tiny"}},
    "backends": {
        "ddp": {"backend": "ddp"},
        "zero3": {"backend": "deepspeed", "ranks": 4},
        "odd": {"backend": "fsdp2", "ranks": 3},
    },
    "throughput": {"reference": "ddp", "repeats": 2},
}


def plan_over(nodes: int, *sets: str, cuda: bool = False) -> Plan:
    suite = suite_from("test", {name: dict(table) for name, table in TABLES.items()}, list(sets))
    return make_plan("test", suite, over_nodes(native.FINGERPRINT, nodes).hardware_key, cuda, nodes)


def test_ranks_that_do_not_divide_are_unsupported_and_the_hardware_is_of_all_hosts():
    plan = plan_over(2)
    assert [(cell.label, cell.reason) for cell in plan.unsupported] == [
        ("pi0-odd", "3 ranks cannot be spread evenly over 2 nodes")
    ]
    assert plan.hardware_key == "2-nodes-cpu-test" and plan.nodes == 2
    assert plan_over(1).hardware_key == "cpu-test" and not plan_over(1).unsupported


def test_turns_become_abba_blocks_and_the_plan_says_why():
    assert all(run.block for run in plan_over(1).runs) and plan_over(1).order_note is None
    plan = plan_over(2)
    labels = [run.cell.label for run in plan.runs if run.kind is RunKind.TIMING]
    assert labels == ["pi0-ddp", "pi0-zero3", "pi0-zero3", "pi0-ddp"] and not any(run.block for run in plan.runs)
    assert plan.order_note.startswith("runs over 2 nodes stand in ABBA blocks")
    assert plan_over(2, cuda=True).order_note is None  # nobody meant them to take turns
    assert plan_over(2, 'throughput.order="abba"').order_note is None
    assert plan_over(2, 'throughput.order="turns"', cuda=True).order_note is not None


def test_the_command_shows_it(typed, tmp_path):
    shown: subprocess.CompletedProcess[str] = typed(
        "plan", "suites/smoke.toml", "--nnodes", "2", "--results", str(tmp_path)
    )
    assert shown.returncode == 0 and "ABBA blocks" in shown.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--nnodes", "2"], "--rdzv-endpoint: expected HOST:PORT of the first of 2 hosts"),
        (["--on", "slrum"], 'did you mean "slurm"?'),
        (["--on", "slurm", "--nnodes", "2"], "slurm.nodes in the suite"),
    ],
)
def test_words_that_do_not_fit_end_in_one_line(typed, tmp_path, words, expected):
    answer = typed("run", "suites/smoke.toml", *words, "--results", str(tmp_path))
    assert answer.returncode == 2 and expected in answer.stderr and "Traceback" not in answer.stderr
