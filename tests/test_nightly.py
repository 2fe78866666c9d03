"""The nightly job's files are what their readers take them for, and call commands that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml

from harness.cli import app
from harness.compare.gated import gated_metrics
from harness.plan import RunKind
from harness.planning import TIMING_METRICS, make_plan
from harness.suite_file import load_suite

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "nightly.yml"
PAGE = (ROOT / "docs" / "nightly.md").read_text()


def block(language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def workflow() -> dict[Any, Any]:
    return yaml.safe_load(WORKFLOW.read_text())


def scripts() -> list[str]:
    steps = workflow()["jobs"]["gate"]["steps"]
    return [step["run"] for step in steps if "run" in step] + [block("bash")]


def commands(script: str) -> list[list[str]]:
    """Every harness command of a script, up to a pipe or a redirection."""
    lines = [line.strip() for line in script.splitlines() if line.strip().startswith("harness ")]
    return [shlex.split(re.split(r"[|>]", line)[0]) for line in lines]


def test_the_workflow_has_the_shape_github_asks_for() -> None:
    found = workflow()
    assert found[True]["schedule"][0]["cron"].split()[:2] == ["0", "2"]  # YAML 1.1 reads the key `on` as true
    job = found["jobs"]["gate"]
    assert job["runs-on"] == ["self-hosted", "harness"]
    for step in job["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
    gate = next(step for step in job["steps"] if step.get("name") == "Gate")
    assert "continue-on-error" not in gate and "||" not in gate["run"]


@pytest.mark.parametrize("script", scripts())
def test_every_shell_script_parses(script: str) -> None:
    answer = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_the_scrontab_has_options_and_a_time() -> None:
    *options, line = block("scrontab").strip().splitlines()
    assert all(re.fullmatch(r"#SCRON --[a-z-]+(=\S+)?", option) for option in options)
    assert re.fullmatch(r"(\S+ ){5}\$HOME/\S+", line)


@pytest.mark.parametrize("words", [words for script in scripts() for words in commands(script)], ids=shlex.join)
def test_every_command_exists_with_its_options_and_files(words: list[str]) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    command = group.commands[words[1]]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words[2:] if word.startswith("--")} <= known
    for word in words[2:]:
        assert not word.endswith(".toml") or (ROOT / word).is_file()


def test_scripts_do_name_the_gate() -> None:
    named = [words[1] for script in scripts() for words in commands(script)]
    assert named.count("gate") == 2


@pytest.mark.parametrize(("name", "cuda"), [("gate", False), ("nightly", True)])
def test_the_suites_are_gates_that_can_fire(name: str, cuda: bool) -> None:
    plan = make_plan(name, load_suite(ROOT / "suites" / f"{name}.toml", []), "test", cuda)
    assert plan.purpose == "gate"
    assert plan.confirmations
    assert len(gated_metrics(RunKind.TIMING)) == TIMING_METRICS


def test_the_small_gate_looks_at_success_too() -> None:
    plan = make_plan("gate", load_suite(ROOT / "suites" / "gate.toml", []), "cpu-test", cuda=False)
    assert plan.confirmation_episodes
