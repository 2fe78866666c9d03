"""The whole path, for real: torchrun, DeepSpeed, FSDP2, MuJoCo. The slowest tests of the suite."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.compare.comparison import Comparison
from harness.libero.records import EpisodeRecord
from harness.plan import Plan
from harness.reading import read_plan, read_results
from harness.store import ResultFolder, Store, read_lines, read_record
from harness.train.records import Outcome, RunRecord

ROOT = Path(__file__).parents[1]
SMOKE = str(ROOT / "suites" / "smoke.toml")


def command(results: Path, suite: str, *settings: str) -> list[str]:
    places = ["--results", str(results), "--baselines", str(results.parent / "baselines")]
    return [sys.executable, "-m", "harness", "run", suite, *settings, *places]


def learning_only(file: Path) -> str:
    """The smoke suite's FSDP2 learning run and nothing else."""
    settings = Path(SMOKE).read_text().split("[throughput]")[0]
    file.write_text(settings + '[learning]\nbackends = ["fsdp2"]\nsteps = 12\ncheckpoint_every = 6\n')
    return str(file)


def harness(*arguments: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "harness", *arguments]
    return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def only_result(results: Path) -> ResultFolder:
    (result,) = Store(results).results("smoke")
    return result


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResultFolder, subprocess.CompletedProcess[str]]:
    results = tmp_path_factory.mktemp("smoke") / "results"
    once = command(
        results, SMOKE, "--set", "throughput.repeats=1"
    )  # a second block would show nothing that this does not
    answer = subprocess.run(once, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    return only_result(results), answer


def test_the_main_job_ends_with_a_verdict(smoke: tuple[ResultFolder, subprocess.CompletedProcess[str]]) -> None:
    result, answer = smoke
    assert answer.returncode in (0, 11), answer.stdout + answer.stderr
    comparison = read_record(result.comparison_file, Comparison)
    assert comparison.exit_code == answer.returncode
    assert "NO_BASELINE" in answer.stdout


def test_every_run_is_recorded_whole(smoke: tuple[ResultFolder, subprocess.CompletedProcess[str]]) -> None:
    result, _ = smoke
    plan = read_plan(result)
    results = read_results(result, plan)
    assert [record.run.key for record in results.runs] == [run.key for run in plan.runs]
    for record in results.runs:
        assert record.outcome is Outcome.OK
        assert record.speed is not None
        assert record.speed.tokens_per_second > record.speed.samples_per_second > 0
        assert record.memory is not None
        assert record.memory.peak_resident_bytes > 0
        assert len(record.memory.shards) == 2
        assert [row.step for row in results.steps[record.run.key]] == list(range(record.run.steps))
    wrappers = {record.run.cell.label: record.in_force.wrapper for record in results.runs if record.in_force}
    assert wrappers["pi0-zero3"] == "DeepSpeedEngine"
    assert wrappers["pi0-fsdp2"].startswith("FSDP")


def test_both_backends_saw_the_same_and_lost_the_same(
    smoke: tuple[ResultFolder, subprocess.CompletedProcess[str]],
) -> None:
    result, _ = smoke
    results = read_results(result, read_plan(result))
    workloads = {record.workload for record in results.runs if record.run.kind == "timing"}
    assert len(workloads) == 1
    losses = {key: [row.loss for row in rows] for key, rows in results.steps.items() if "timing" in key}
    reference = losses["pi0-zero3/timing-0"]
    assert all(loss == pytest.approx(reference, abs=1e-5) for loss in losses.values())


def test_the_control_arms_stand_apart(smoke: tuple[ResultFolder, subprocess.CompletedProcess[str]]) -> None:
    result, _ = smoke
    outcomes = {
        arm.name: [record.outcome for record in read_lines(result.episodes_file(arm.name), EpisodeRecord)]
        for arm in read_plan(result).arms
    }
    assert outcomes["expert"] == ["success"]
    assert outcomes["still"] == ["failure"]
    assert set(outcomes) == {"pi0-zero3-seed0", "pi0-fsdp2-seed0", "expert", "still"}


def test_the_report_holds_the_tables(smoke: tuple[ResultFolder, subprocess.CompletedProcess[str]]) -> None:
    report = smoke[0].report_file.read_text()
    for words in ("zero3", "fsdp2", "Libero-Spatial", "Libero-10", "DB-PI05-FSDP2", "96.2", "harness baseline accept"):
        assert words in report
    assert max(len(line) for line in report.splitlines() if line.startswith("|")) <= 100


def test_a_finished_result_can_be_accepted_and_compared_with(
    smoke: tuple[ResultFolder, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    result, _ = smoke
    baselines = ["--baselines", str(tmp_path / "baselines")]
    name = [str(result.path)]
    accepted = harness("baseline", "accept", *name, "--reason", "first", *baselines, "--json")
    assert accepted.returncode == 0, accepted.stderr
    assert Path(json.loads(accepted.stdout)["file"]).exists()
    assert "smoke" in harness("baseline", "show", *baselines).stdout
    again = harness("compare", *name, *baselines)
    assert "NO_BASELINE" not in again.stdout
    assert again.returncode in (0, 11)
    assert harness("report", *name).stdout.startswith("# ")


# --- interruptions -----------------------------------------------------------------------------------------


def start_and_kill(arguments: list[str], ready: Callable[[], bool], victim: Callable[[int], int]) -> int:
    """Starts a harness, waits until `ready`, kills one of its processes with SIGKILL; its exit status."""
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not ready():
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(victim(process.pid), signal.SIGKILL)
    return process.wait(timeout=300)


def a_rank_of(pid: int) -> int:
    """The process of rank 1 among the descendants of a harness."""
    ranks = [
        child.pid
        for child in psutil.Process(pid).children(recursive=True)
        if "harness.train.worker" in child.cmdline() and child.environ().get("RANK") == "1"
    ]
    return ranks[-1]


def workers_alive(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "harness.train.worker" in line and str(folder) in line:
            found.append(process.pid)
    return found


def test_kills_in_the_middle_leave_the_same_final_records(
    smoke: tuple[ResultFolder, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """kill -9 of the harness, then of a rank, in the middle of a learning run; then it completes."""
    results = tmp_path / "results"
    results.mkdir()
    (results / "demos").symlink_to(smoke[0].path.parents[1] / "demos")
    arguments = command(results, learning_only(tmp_path / "smoke.toml"))
    key = "pi0-fsdp2/learning-0"

    def checkpointed(attempt: int) -> bool:
        folder = results / "smoke"
        return any(folder.glob(f"*/train/{key}/attempt-{attempt}/checkpoint/step-*/complete.json"))

    assert start_and_kill(arguments, lambda: checkpointed(1), lambda pid: pid) == -signal.SIGKILL
    time.sleep(1)
    assert workers_alive(results) == []
    assert start_and_kill(arguments, lambda: rank_is_training(results, key, 2), a_rank_of) == 12
    plan: Plan = read_plan(only_result(results))
    crashed = read_record(only_result(results).attempts(key)[-1] / "run.json", RunRecord)
    assert crashed.outcome is Outcome.CRASHED
    assert crashed.failure is not None
    assert crashed.failure.rank == 1
    answer = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert answer.returncode in (0, 11), answer.stdout + answer.stderr
    assert len(only_result(results).attempts(key)) == 3
    whole = read_results(smoke[0], read_plan(smoke[0])).steps[key]
    ended = read_results(only_result(results), plan)
    resumed = ended.steps[key]
    assert all(row.resumed for row in resumed[:6])
    assert all((record.checkpoint_load_seconds or 0) > 0 for record in ended.runs)
    assert [(row.step, row.loss, row.gradient_norm) for row in resumed] == [
        (row.step, row.loss, row.gradient_norm) for row in whole
    ]


def rank_is_training(results: Path, key: str, attempt: int) -> bool:
    return any((results / "smoke").glob(f"*/train/{key}/attempt-{attempt}/rank-1.steps.jsonl"))
