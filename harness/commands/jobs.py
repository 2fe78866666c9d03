"""`harness evaluate` and `harness demos`: one job without a suite file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from harness.commands.output import Output
from harness.commands.suites import run_plan
from harness.errors import BadInput, ExitCode
from harness.libero.protocol import preset
from harness.machine import fingerprint
from harness.plan import Plan, PlannedArm
from harness.planning import planned_episodes
from harness.policies.remote import check_url, is_url
from harness.suite import BLINDED, CONTROLS, Data, Evaluation, Gate, Scope, is_control, parse_ranges
from harness.suite_file import explain
from harness.task_suites import INITIAL_STATES, task_count


@dataclass(frozen=True)
class EvaluationRequest:
    policy: str
    task_suite: str
    """Several are separated by commas."""
    tasks: str
    episodes: int
    protocol: str
    seed: int
    workers: int
    replan_steps: int | None = None
    max_errors: int = 20
    control: str | None = None
    """A control to be run beside the policy."""
    blind: bool = False
    """The policy itself also without images, and with another task's instruction."""
    executor: str = "local"
    pass_mark: float | None = None
    stop_early: bool = False


@dataclass(frozen=True)
class DemosRequest:
    task_suite: str
    tasks: str
    episodes: int
    action_noise: float
    frame_stride: int | None
    """None: 3, or 1 where every step needs a frame."""
    object_jitter_m: float
    seed: int
    workers: int
    lerobot: Path | None
    """Where to write them as a LeRobot data set too."""


def evaluate(request: EvaluationRequest, output: Output) -> ExitCode:
    """A plan with nothing to train: the policy's arm, and a control's beside it if one is wanted."""
    preset(request.protocol)
    evaluation = _evaluation(request)
    arms = [_arm(request.policy)]
    if request.blind:
        if arms[0].checkpoint is None and arms[0].url is None:
            raise BadInput("--blind", None, request.policy, "a policy that looks: an export folder or a server")
        arms += [arms[0].model_copy(update={"name": arms[0].name + ending}) for ending in BLINDED]
    if request.control is not None:
        if request.control not in CONTROLS:
            raise BadInput("--control", None, request.control, "a control", CONTROLS)
        arms += [PlannedArm(name=request.control)] if request.control != request.policy else []
    plan = Plan(
        suite="evaluate",
        purpose="bench",
        seed=request.seed,
        hardware_key=fingerprint().hardware_key,
        runs=[],
        unsupported=[],
        reference=None,
        arms=arms,
        episodes=planned_episodes(evaluation, request.seed),
        evaluation=evaluation,
        gate=Gate(),
    )
    return run_plan(plan, "# harness evaluate\n", output)


def _evaluation(request: EvaluationRequest) -> Evaluation:
    tables = {
        "protocol": request.protocol,
        "arms": ["expert"],
        "scopes": _scopes(request),
        "workers": request.workers,
        "replan_steps": request.replan_steps,
        "executor": request.executor,
        "max_errors": request.max_errors,
        "pass_mark": request.pass_mark,
        "stop_early": request.stop_early,
    }
    try:
        return Evaluation.model_validate(tables)
    except ValidationError as error:
        raise explain("harness evaluate", error) from None


def _arm(policy: str) -> PlannedArm:
    if is_control(policy):
        return PlannedArm(name=policy)
    if is_url(policy):
        check_url(policy)
        return PlannedArm(name="server", url=policy)
    folder = Path(policy)
    if not (folder / "model.safetensors").is_file():
        expected = "a control, an export folder with model.safetensors, or a URL such as ws://127.0.0.1:8000"
        raise BadInput("--policy", None, policy, expected, CONTROLS)
    return PlannedArm(name="checkpoint", checkpoint=str(folder.resolve()))


def _scopes(request: EvaluationRequest) -> list[Scope]:
    """One for each task suite that is named."""
    if not 1 <= request.episodes <= INITIAL_STATES:
        raise BadInput("--episodes", None, request.episodes, f"1 to {INITIAL_STATES}: a task's initial states")
    names = [name.strip() for name in request.task_suite.split(",")]
    if len(set(names)) < len(names):
        raise BadInput("--task-suite", None, request.task_suite, "each task suite once")
    return [_scope(name, request) for name in names]


def _scope(task_suite: str, request: EvaluationRequest) -> Scope:
    tables = {
        "task_suite": task_suite,
        "tasks": list(range(task_count(task_suite))) if request.tasks == "all" else _tasks(request.tasks),
        "initial_states": f"0-{request.episodes - 1}",
    }
    try:
        return Scope.model_validate(tables)
    except ValidationError as error:
        raise explain("harness evaluate", error) from None


def _tasks(text: str) -> list[int]:
    try:
        return parse_ranges(text)
    except ValueError as error:
        raise BadInput("--tasks", None, text, str(error)) from None


def lerobot_folder(file_format: str, folder: Path | None) -> Path | None:
    """Where a LeRobot data set goes, if one is asked for. Raises BadInput before anything is made."""
    formats = ("hdf5", "lerobot")
    if file_format not in formats:
        raise BadInput("--format", None, file_format, "a format", formats)
    if (file_format == "lerobot") != (folder is not None):
        raise BadInput("--output", None, folder and str(folder), "a folder with --format lerobot, and nothing without")
    if folder is not None and folder.exists():
        raise BadInput("--output", None, str(folder), "a folder that is not there yet")
    return folder


def demos(request: DemosRequest, output: Output) -> None:
    from harness.demonstrations import make_shown, spoken_record, write_as_lerobot

    stride = request.frame_stride or (1 if request.lerobot else Data.model_fields["frame_stride"].default)
    if request.lerobot and stride != 1:
        raise BadInput("--frame-stride", None, stride, "1: a LeRobot data set has a frame at every step")
    tables = {
        "source": "expert",
        "task_suite": request.task_suite,
        "tasks": _tasks(request.tasks),
        "episodes": request.episodes,
        "action_noise": request.action_noise,
        "frame_stride": stride,
        "object_jitter_m": request.object_jitter_m,
    }
    try:
        data = Data.model_validate(tables)
    except ValidationError as error:
        raise explain("harness demos", error) from None
    folder, record = make_shown(data, request.seed, output.store, request.workers, output.console, quiet=output.quiet)
    if request.lerobot:
        write_as_lerobot(record, folder, request.lerobot)
    made = str(request.lerobot or folder)
    if output.json:
        print(json.dumps({"folder": made, **record.model_dump(mode="json")}, indent=1))
    else:
        output.console.print(f"{made}: {spoken_record(record)}", highlight=False)
