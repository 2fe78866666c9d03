from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Typed = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).parents[1]
FSDP2 = str(ROOT / "suites" / "fsdp2.toml")
COMMANDS = [
    "plan",
    "run",
    "train",
    "evaluate",
    "compare",
    "report",
    "baseline accept",
    "baseline show",
    "demos",
    "serve",
    "replay",
]
HEAVY = {"torch", "deepspeed", "transformers", "mujoco", "pandas", "matplotlib", "scipy", "numpy", "pydantic"}


GATING = ["gate", "calibrate", "drill", "baseline diff", "baseline expire", "baseline history"]


@pytest.mark.parametrize("command", [*COMMANDS, *GATING, "doctor", "clean"])
def test_every_command_has_help(command: str, typed: Typed) -> None:
    answer = typed(*command.split(), "--help")
    assert answer.returncode == 0
    assert "Usage" in answer.stdout


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom harness.cli import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "print(','.join(sys.modules), file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert HEAVY.isdisjoint(answer.stderr.strip().split(","))


def test_a_plan_is_made_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom harness.cli import app\n"
        f"try: app(['plan', {FSDP2!r}, '--results', {str(tmp_path)!r}, '--json'])\nexcept SystemExit: pass\n"
        "print(','.join(sys.modules), file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {"torch", "deepspeed", "transformers", "mujoco"}.isdisjoint(answer.stderr.strip().split(","))
    shown = json.loads(answer.stdout)
    assert [run["cell"]["label"] for run in shown["plan"]["runs"]][:4] == [
        "pi0-zero3",
        "pi0-zero2",
        "pi0-fsdp2",
        "pi0-ddp",
    ]
    assert shown["seconds_left"] > 0
    assert shown["disk_bytes"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "suites/fsdp22.toml"], 'did you mean "suites/fsdp2.toml"'),
        (["run", FSDP2, "--set", "throughput.stps=1"], 'did you mean "steps"'),
        (["run", FSDP2, "--backends", "fsdp22"], 'did you mean "fsdp2"'),
        (["run", FSDP2, "--models", "pi1"], 'did you mean "pi0"'),
        (["run", FSDP2, "--set", "purpose=gate"], "throughput.repeats = 5: expected at least"),
        (["run", FSDP2, "--set", "evaluation.protocol=mikro"], 'did you mean "micro"'),
        (["run", FSDP2, "--set", "defaults.stack=trainer", "--profile"], "--profile: stack = 'trainer': expected"),
        (
            ["run", FSDP2, "--set", "backends.fsdp2.stack=trainer", "--plant", "pi0-fsdp2=sleep:0.2"],
            "expected a cell of the native stack",
        ),
        (["train", "--train-backend", "fsdpp"], "expected a backend (ddp, deepspeed, fsdp, fsdp2)"),
        (["train", "--zero-stage", "4", "--train-backend", "deepspeed"], "zero_stage = 4: expected 1, 2 or 3"),
        (
            ["evaluate", "--policy", "still", "--task-suite", "libero_goal", "--protocol", "mikro"],
            'did you mean "micro"',
        ),
        (["evaluate", "--policy", "exprt", "--task-suite", "libero_goal"], 'did you mean "expert"'),
        (["evaluate", "--policy", "still", "--task-suite", "libero_gaol"], 'did you mean "libero_goal"'),
        (["evaluate", "--policy", "still", "--task-suite", "libero_goal", "--tasks", "11"], "task numbers from 0 to 9"),
        (["evaluate", "--policy", "still", "--task-suite", "libero_goal", "--episodes", "51"], "1 to 50"),
        (["evaluate", "--policy", "still", "--task-suite", "libero_90", "--tasks", "90"], "task numbers from 0 to 89"),
        (["evaluate", "--policy", "still", "--task-suite", "libero_goal_swop"], 'did you mean "libero_goal_swap"'),
        (["evaluate", "--policy", "still", "--task-suite", "libero_10,libero_gaol"], 'did you mean "libero_goal"'),
        (["evaluate", "--policy", "still", "--task-suite", "libero_goal, libero_goal"], "each task suite once"),
        (["evaluate", "--policy", "wz://a:1", "--task-suite", "libero_goal"], 'did you mean "ws"'),
        (["evaluate", "--policy", "still", "--task-suite", "libero_goal", "--control", "exprt"], 'mean "expert"'),
        (["evaluate", "--policy", "expert", "--task-suite", "libero_goal", "--blind"], "a policy that looks"),
        (["evaluate", "--policy", "still", "--task-suite", "libero_goal", "--executor", "rya"], 'mean "ray"'),
        (["serve", "nothing"], "expected an export folder with model.safetensors"),
        (["replay", "nothing.npz", "-o", "x.mp4"], "expected a file in an arm's actions folder"),
        (["replay", "nothing.npz", "-o", "x.txt"], "ends in .mp4 or .mkv or .mov"),
        (["replay", "nothing.npz", "-o", "x.mp4", "--cameras", "agentvew"], 'did you mean "agentview"'),
        (["demos", "--task-suite", "libero"], "expected one of (libero_10"),
        (["compare", "nothing"], "RESULT = 'nothing': expected a result in"),
        (["compare", "nothing", "--published"], "no RESULT beside it"),
        (["gate", FSDP2], "throughput.repeats = 5: expected at least"),
        (["calibrate", FSDP2], "no timing run of fsdp2 is stored"),
        (["drill", FSDP2], "0 recorded repeats of nothing"),
        (["baseline", "history", "nothing"], "expected a suite with a baseline"),
        (["baseline", "expire", "nothing", "--reason", "x"], "expected a baseline in baselines"),
        (["baseline", "show", "nothing"], "expected a suite with a baseline"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], says: str, typed: Typed, tmp_path: Path) -> None:
    where = {"run", "train", "evaluate", "demos", "compare", "gate", "calibrate", "drill"}
    places = ["--results", str(tmp_path)] if arguments[0] in where else []
    answer = typed(*arguments, *places)
    assert answer.returncode == 2
    assert says in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("harness: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [('{"schema_version": 99}', "written by a newer harness"), ('{"suite": "fsdp2", ', "not a readable Plan")],
)
@pytest.mark.parametrize("command", [["run", FSDP2], ["report", "fsdp2"], ["compare", "fsdp2"]], ids=lambda c: c[0])
def test_a_damaged_or_newer_result_is_named_and_left_alone(
    command: list[str], content: str, says: str, typed: Typed, tmp_path: Path
) -> None:
    file = tmp_path / "fsdp2" / "20260101-000000-aaaaaa" / "plan.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    answer = typed(*command, "--results", str(tmp_path))
    assert answer.returncode == 2
    assert says in answer.stderr
    assert str(file) in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert file.read_text() == content
    assert [path.name for path in (tmp_path / "fsdp2").iterdir()] == ["20260101-000000-aaaaaa"]


def test_a_command_line_that_makes_no_sense_ends_with_2(typed: Typed) -> None:
    assert typed("run").returncode == 2
    assert typed("fly").returncode == 2


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "harness", "run", "nothing.toml"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("harness: ") and answer.stderr.count("\n") == 1


def test_narrowing_to_a_backend_keeps_the_reference(typed: Typed, tmp_path: Path) -> None:
    answer = typed("plan", FSDP2, "--backends", "ddp", "--json", "--results", str(tmp_path))
    plan = json.loads(answer.stdout)["plan"]
    assert {run["cell"]["label"] for run in plan["runs"]} == {"pi0-zero3", "pi0-ddp"}


def test_doctor_says_what_there_is(typed: Typed, tmp_path: Path) -> None:
    answer = typed("doctor", "--json", "--results", str(tmp_path))
    assert "`harness doctor`" in (ROOT / "README.md").read_text()
    findings = {finding["name"]: finding for finding in json.loads(answer.stdout)}
    assert answer.returncode == 0
    assert {"Python", "torch", "deepspeed", "transformers", "GPUs", "compiler", "disk"} <= set(findings)
    assert all(finding["mend"] for finding in findings.values() if not finding["ok"])
