"""Runs and steps for experiment trackers, all of them offline: TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from harness.compare.comparison import Comparison
from harness.compare.metrics import METRICS
from harness.compare.results import Results
from harness.errors import MachineFault
from harness.train.records import RunRecord, StepRow

STEP_SERIES = ("loss", "gradient_norm", "step_seconds", "data_seconds", "learning_rate")
"""Fields of `StepRow` that are logged at every step; a missing value is a gap."""
MLFLOW_DATABASE = "mlflow.db"
_MLFLOW_BATCH = 1000
"""The most metrics that MLflow takes in one `log_batch`."""


class TrackedRun(NamedTuple):
    """One run as every tracker wants it."""

    name: str
    group: str
    started: float
    """Seconds since the epoch."""
    settings: dict[str, str | int | float | bool]
    summary: dict[str, float]
    tags: dict[str, str]
    steps: list[StepRow]

    def series(self) -> Iterator[tuple[int, dict[str, float]]]:
        """(step, values) with only the values that are there."""
        for row in self.steps:
            values = {name: value for name in STEP_SERIES if (value := getattr(row, name)) is not None}
            yield row.step, values


def tracked_runs(comparison: Comparison, results: Results) -> list[TrackedRun]:
    """Every run of a result, failed ones too: their outcome is a tag."""
    return [_tracked(record, comparison, results.steps.get(record.run.key, [])) for record in results.runs]


def _tracked(record: RunRecord, comparison: Comparison, steps: list[StepRow]) -> TrackedRun:
    figures = {metric.name: metric.read(record) for metric in METRICS.values()} | {"final_loss": record.final_loss}
    return TrackedRun(
        name=record.run.key,
        group=comparison.result,
        started=datetime.fromisoformat(record.started_at).timestamp(),
        settings=dict(_flat(record.run.cell.model_dump(mode="json"))),
        summary={name: float(figure) for name, figure in figures.items() if figure is not None},
        tags={
            "suite": comparison.suite,
            "kind": str(record.run.kind),
            "outcome": str(record.outcome),
            "hardware_key": comparison.hardware_key,
        },
        steps=steps,
    )


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str | int | float | bool]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value if isinstance(value, str | int | float | bool) else str(value)


def to_tensorboard(runs: list[TrackedRun], folder: Path) -> None:
    """Event files, a folder per run. Raises MachineFault without the extra."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise _missing("tensorboard") from None
    for run in runs:
        writer = SummaryWriter(log_dir=str(folder / run.name))
        try:
            settings = "\n".join(f"    {name} = {value}" for name, value in (run.settings | run.tags).items())
            writer.add_text("configuration", settings, walltime=run.started)
            at = run.started
            for (step, values), row in zip(run.series(), run.steps, strict=True):
                at += row.step_seconds + row.data_seconds
                for name, value in values.items():
                    writer.add_scalar(f"step/{name}", value, step, walltime=at)
            for name, value in run.summary.items():
                writer.add_scalar(f"run/{name}", value, 0, walltime=at)
        finally:
            writer.close()


def to_wandb(runs: list[TrackedRun], folder: Path, project: str) -> None:
    """Offline runs in `folder/wandb`; `wandb sync` sends them when somebody wants that.

    Raises MachineFault without the extra.
    """
    try:
        import wandb
    except ImportError:
        raise _missing("wandb") from None
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        settings = wandb.Settings(mode="offline", silent=True, console="off", disable_git=True, disable_code=True)
        offline = wandb.init(
            project=project, dir=str(folder), name=run.name, group=run.group, config=run.settings | run.tags,
            reinit="finish_previous", settings=settings,
        )  # fmt: skip
        for step, values in run.series():
            offline.log(values, step=step)
        offline.summary.update(run.summary)
        offline.finish()


def to_mlflow(runs: list[TrackedRun], folder: Path, project: str) -> None:
    """A database `folder/mlflow.db`: `mlflow ui --backend-store-uri sqlite:///…/mlflow.db` shows it.

    Raises MachineFault without the extra.
    """
    try:
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise _missing("mlflow") from None
    folder.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(tracking_uri=f"sqlite:///{folder.resolve() / MLFLOW_DATABASE}")
    found = client.get_experiment_by_name(project)
    artifacts = (folder / "artifacts").resolve().as_uri()
    experiment = found.experiment_id if found else client.create_experiment(project, artifact_location=artifacts)
    for run in runs:
        begun = round(run.started * 1e3)
        made = client.create_run(experiment, start_time=begun, run_name=run.name).info.run_id
        metrics = [Metric(name, value, begun, 0) for name, value in run.summary.items()]
        for step, values in run.series():
            metrics += [Metric(f"step_{name}", value, begun, step) for name, value in values.items()]
        client.log_batch(
            made,
            params=[Param(name, str(value)) for name, value in run.settings.items()],
            tags=[RunTag(name, value) for name, value in (run.tags | {"result": run.group}).items()],
        )
        for start in range(0, len(metrics), _MLFLOW_BATCH):
            client.log_batch(made, metrics=metrics[start : start + _MLFLOW_BATCH])
        client.set_terminated(made)


def _missing(package: str) -> MachineFault:
    return MachineFault(f"{package} is not installed; `pip install 'vla-harness[{package}]'` brings it")
