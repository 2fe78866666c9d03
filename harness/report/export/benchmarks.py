"""Step times in the file formats of two benchmark tools: pytest-benchmark and github-action-benchmark."""

from __future__ import annotations

import statistics
from datetime import datetime
from typing import Any

from harness.compare.comparison import Comparison
from harness.compare.metrics import METRICS, read
from harness.compare.results import Results, ended_well, unique
from harness.plan import RunKind
from harness.train.records import RunRecord

PYTEST_BENCHMARK_VERSION = "5.0.0"
"""Of the format written here; `pytest-benchmark compare` reads it."""


def pytest_benchmark(comparison: Comparison, results: Results) -> dict[str, Any]:
    """`.benchmarks/*.json` of pytest-benchmark: a benchmark per cell, a round per fresh process group.

    A round is the process's median step time in seconds, so that the tool's own statistics are over independent
    processes. Cells without a timing run that ended well are left out.
    """
    timed = {label: figures for label in results.labels(RunKind.TIMING) if (figures := _step_seconds(label, results))}
    first = results.runs[0] if results.runs else None
    when = first.started_at if first else datetime.min.isoformat()
    return {
        "machine_info": _machine_info(first),
        "commit_info": {
            "id": "unversioned", "time": when, "author_time": when, "dirty": False, "project": comparison.suite,
            "branch": comparison.result,
        },
        "benchmarks": [
            {
                "group": comparison.suite,
                "name": label,
                "fullname": f"{comparison.suite}/{label}",
                "params": None,
                "param": None,
                "extra_info": {"hardware_key": comparison.hardware_key, "metric": "step_seconds"},
                "options": {
                    "disable_gc": False, "timer": "perf_counter", "min_rounds": len(figures), "max_time": 0.0,
                    "min_time": 0.0, "warmup": True,
                },
                "stats": _stats(figures),
            }
            for label, figures in timed.items()
        ],
        "datetime": when,
        "version": PYTEST_BENCHMARK_VERSION,
    }  # fmt: skip


def _machine_info(run: RunRecord | None) -> dict[str, Any]:
    if run is None:
        return {"cpu": {}}
    made = run.fingerprint
    return {
        "node": made.hostname,
        "machine": made.hardware_key,
        "system": "Linux",
        "release": made.kernel,
        "python_version": made.python,
        "cpu": {"brand_raw": made.cpu, "count": made.cores},
    }


def _step_seconds(label: str, results: Results) -> list[float]:
    return read(METRICS["step_seconds"], ended_well(results.of(label, RunKind.TIMING)))


def _stats(figures: list[float]) -> dict[str, Any]:
    """The fields of pytest-benchmark's `Stats.as_dict`; quartiles by the inclusive method."""
    q1, median, q3 = statistics.quantiles(figures, n=4, method="inclusive") if len(figures) > 1 else figures * 3
    mean = statistics.fmean(figures)
    spread = statistics.stdev(figures) if len(figures) > 1 else 0.0
    return {
        "min": min(figures), "max": max(figures), "mean": mean, "stddev": spread, "rounds": len(figures),
        "median": median, "iqr": q3 - q1, "q1": q1, "q3": q3, "iqr_outliers": 0, "stddev_outliers": 0,
        "outliers": "0;0", "ld15iqr": min(figures), "hd15iqr": max(figures), "ops": 1 / mean, "total": sum(figures),
        "iterations": 1, "data": figures,
    }  # fmt: skip


def github_benchmark(comparison: Comparison, results: Results) -> list[dict[str, Any]]:
    """The `customSmallerIsBetter` list of github-action-benchmark: step time, memory and checkpoint of every cell."""
    found = []
    for label in unique(cell.label for cell in comparison.cells):
        runs = ended_well(results.of(label))
        for metric in METRICS.values():
            figures = read(metric, runs)
            if metric.better != "lower" or not metric.gated or not figures:
                continue
            found.append(
                {
                    "name": f"{label} {metric.name}",
                    "unit": metric.unit,
                    "value": statistics.median(figures),
                    "range": f"{min(figures):.6g} to {max(figures):.6g}",
                    "extra": f"median of {len(figures)} fresh process groups; result {comparison.result}",
                }
            )
    return found
