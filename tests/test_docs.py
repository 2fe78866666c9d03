"""What the pages tell people to type exists, and works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import pytest
import typer

from harness.cli import app

Typed = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *ROOT.glob("*/README.md"),
]


def commands_of(page: Path) -> list[str]:
    text = page.read_text()
    inline = re.findall(r"`(harness [^`\n]+)`", text)
    blocks = re.findall(r"^(harness [^#\n]+)", "".join(re.findall(r"```.*?```", text, re.DOTALL)), re.MULTILINE)
    return list(dict.fromkeys(line.strip() for line in inline + blocks))


@cache
def whole() -> click.Command:
    return typer.main.get_command(app)


def parsed(command: list[str]) -> tuple[click.Command, list[str]]:
    """The command a line names, and what is left for its options."""
    found = whole()
    while hasattr(found, "commands") and command[0] != "--help":
        assert command[0] in found.commands, f"no command {command[0]!r}"
        found = found.commands[command.pop(0)]
    return found, command


ALL = [(page, line) for page in PAGES for line in commands_of(page)]


@pytest.mark.parametrize(("page", "line"), ALL, ids=[f"{page.name}: {line}" for page, line in ALL])
def test_every_command_on_a_page_exists_with_its_options(page: Path, line: str) -> None:
    words = shlex.split(line.replace("…", "X"))[1:]
    command, rest = parsed(words)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.split("=")[0] for word in rest if word.startswith("--")} <= known | {"--help"}


def test_the_pages_do_name_commands() -> None:
    named = {line.split()[1] for _, line in ALL}
    assert {"plan", "run", "train", "evaluate", "compare", "report", "baseline", "demos", "doctor", "clean"} <= named


QUICK = ["plan suites/fsdp2.toml", "baseline show", "clean"]
"""`harness doctor`, which takes longer, is tried in tests/test_cli.py."""


@pytest.mark.parametrize("command", QUICK)
def test_the_quick_commands_of_the_readme_work_as_pasted(command: str, typed: Typed, tmp_path: Path) -> None:
    assert f"`harness {command}`" in (ROOT / "README.md").read_text()
    places = [] if command == "baseline show" else ["--results", str(tmp_path)]
    answer = typed(*command.split(), *places)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout


SIMULATED = [
    "evaluate --policy expert --task-suite libero_object --tasks 0 --episodes 2",
    "demos --task-suite libero_object --tasks 0 --episodes 2",
]


@pytest.mark.full
@pytest.mark.parametrize("command", SIMULATED)
def test_the_simulating_commands_of_the_readme_work_as_pasted(command: str, tmp_path: Path) -> None:
    assert f"`harness {command}`" in (ROOT / "README.md").read_text()
    answer = subprocess.run(
        [sys.executable, "-m", "harness", *command.split(), "--results", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=590, check=False,
    )  # fmt: skip
    assert answer.returncode in (0, 11), answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.full
@pytest.mark.parametrize("backend", ["deepspeed", "fsdp", "fsdp2", "ddp"])
def test_one_timed_run_under_each_backend(backend: str, tmp_path: Path) -> None:
    command = ["train", "--model", "pi0", "--train-backend", backend, "--size", "tiny", "--steps", "6"]
    answer = subprocess.run(
        [sys.executable, "-m", "harness", *command, "--results", str(tmp_path), "--json"],
        cwd=ROOT, capture_output=True, text=True, timeout=590, check=False,
    )  # fmt: skip
    assert answer.returncode in (0, 11), answer.stderr
    assert '"OK"' in (next(tmp_path.glob("train/*/train/*/timing-0/attempt-1/run.json"))).read_text()
