"""One result in other programs' formats, read back by those programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as Xml

import pandas as pd
import pytest

from harness.commands.output import Output
from harness.commands.reports import FORMATS, export
from harness.errors import BadInput
from harness.report.dossier import Dossier
from harness.report.export.benchmarks import github_benchmark, pytest_benchmark
from harness.report.export.trackers import MLFLOW_DATABASE, to_mlflow, to_tensorboard, to_wandb, tracked_runs

RESULT = "20261130-020957-9b0616"


@pytest.fixture
def output(real_results: Path, tmp_path: Path) -> Output:
    return Output(real_results, tmp_path / "baselines", json=False, quiet=False)


def test_tables_as_csv_and_parquet_hold_the_same(
    output: Output, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("csv", "parquet"):
        export(RESULT, kind, tmp_path / kind, output)
    written = capsys.readouterr().out.split()
    assert len(written) == 8 and all(Path(file).is_file() for file in written)
    for name, count in (("runs", 10), ("episodes", 92), ("steps", 4 * 2 * 35 + 2 * 700)):
        plain, typed = (
            pd.read_csv(tmp_path / "csv" / f"{name}.csv"),
            pd.read_parquet(tmp_path / "parquet" / f"{name}.parquet"),
        )
        assert len(plain) == len(typed) == count
        assert list(plain.columns) == list(typed.columns)
    assert typed["loss"].sum() == pytest.approx(plain["loss"].sum())


def test_pytest_benchmark_compares_two_results(output: Output, tmp_path: Path) -> None:
    for name in (RESULT, "20261130-030353-f63925"):
        export(name, "pytest-benchmark", tmp_path / f"{name[:15]}.json", output)
    files = sorted(map(str, tmp_path.glob("*.json")))
    answer = subprocess.run(
        [Path(sys.executable).parent / "pytest-benchmark", "compare", *files, "--columns=median,rounds"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "benchmark 'fsdp2': 6 tests" in answer.stdout
    rows = [line.split() for line in answer.stdout.splitlines() if line.startswith("pi0-zero2 ")]
    assert rows[0][-1] == "2" and rows[0][2].startswith("180.")


def test_rounds_are_processes_not_steps(real: Dossier) -> None:
    benchmarks = pytest_benchmark(real.comparison, real.results)["benchmarks"]
    assert {b["name"]: b["stats"]["rounds"] for b in benchmarks} == dict.fromkeys(
        ("pi0-zero3", "pi0-zero2", "pi0-fsdp2", "pi0-ddp"), 2
    )


def test_github_benchmark_entries_are_all_smaller_is_better(real: Dossier) -> None:
    entries = github_benchmark(real.comparison, real.results)
    assert all({"name", "unit", "value"} <= entry.keys() and entry["value"] > 0 for entry in entries)
    names = {entry["name"] for entry in entries}
    assert "pi0-fsdp2 step_seconds" in names and not any("per_second" in name for name in names)


def test_junit_is_the_gates(output: Output, tmp_path: Path) -> None:
    export(RESULT, "junit", tmp_path / "harness", output)
    root = Xml.parse(tmp_path / "harness.xml").getroot()
    assert root.tag == "testsuites" and int(root.get("tests", "0")) > 10


def test_every_format_of_the_help_is_there(output: Output) -> None:
    from harness.cli.results import export_result

    text = json.dumps([str(part) for part in export_result.__annotations__.values()])
    assert all(name in text for name in FORMATS)
    with pytest.raises(BadInput, match='did you mean "parquet"'):
        export(RESULT, "parkett", None, output)


# --- experiment trackers: extras, offline -------------------------------------------------------------------


@pytest.mark.full
def test_tensorboard_reads_every_loss(real: Dossier, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    to_tensorboard(tracked_runs(real.comparison, real.results), tmp_path)
    events = accumulator.EventAccumulator(str(tmp_path / "pi0-fsdp2" / "learning-0"), {"scalars": 0}).Reload()
    losses = [event.value for event in events.Scalars("step/loss")]
    recorded = [row.loss for row in real.results.steps["pi0-fsdp2/learning-0"]]
    assert losses == pytest.approx(recorded, rel=1e-6)
    assert events.Scalars("run/checkpoint_bytes")[0].value > 1e6


@pytest.mark.full
def test_mlflow_finds_runs_settings_and_figures(real: Dossier, tmp_path: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    few = [run for run in tracked_runs(real.comparison, real.results) if "timing-0" in run.name]
    to_mlflow(few, tmp_path, "fsdp2")
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / MLFLOW_DATABASE}")
    experiment = client.get_experiment_by_name("fsdp2")
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(found) == {run.name for run in few}
    fsdp2 = found["pi0-fsdp2/timing-0"]
    assert fsdp2.data.params["backend.backend"] == "fsdp2" and fsdp2.data.tags["outcome"] == "OK"
    assert len(client.get_metric_history(fsdp2.info.run_id, "step_loss")) == 35


@pytest.mark.full
def test_wandb_writes_offline_runs(real: Dossier, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    few = [run for run in tracked_runs(real.comparison, real.results) if "timing-0" in run.name][:2]
    to_wandb(few, tmp_path, "fsdp2")
    files = list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2 and all(file.stat().st_size > 1000 for file in files)
