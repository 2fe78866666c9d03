from __future__ import annotations

from typing import Any

import pytest
from comparison_records import MACHINE, a_run

from harness.train.disturbance import disturbance, usual_mhz
from harness.train.records import HostConditions, HostRecord, RunRecord


def a_run_beside(foreign_cpu_share: float | None, gpus: int | None = None, mhz: float | None = None) -> RunRecord:
    host = HostConditions(
        load_average=9.0, foreign_cpu_share=foreign_cpu_share, cpu_mhz=800.0, temperature_celsius=None,
        foreign_gpu_processes=gpus,
    )  # fmt: skip
    return a_run("ddp", host=host, busy_cpu_mhz=mhz)


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (a_run_beside(0.09), None),
        (a_run_beside(None), None),
        (a_run("ddp"), None),
        (a_run_beside(0.31), "other processes took 31% of the CPU"),
        (a_run_beside(0.0, gpus=0), None),
        (a_run_beside(0.0, gpus=2), "other processes on the GPUs: 2"),
        (a_run_beside(0.0, mhz=2800.0), None),
        (a_run_beside(0.2, mhz=2000.0), "other processes took 20% of the CPU, the clock was at 2000 MHz, usually 3000"),
    ],
)
def test_only_the_machine_is_asked(run: RunRecord, told: str | None) -> None:
    assert disturbance(run, 3000.0) == told


def test_one_busy_host_of_several_is_enough() -> None:
    run, busy = a_run_beside(0.0), a_run_beside(0.4).host
    other = HostRecord(name="b", address="10.0.0.2", ranks=[2, 3], fingerprint=MACHINE, conditions=busy)
    lost = other.model_copy(update={"conditions": None})
    assert disturbance(run.model_copy(update={"hosts": [lost]}), None) is None
    assert disturbance(run.model_copy(update={"hosts": [lost, other]}), None) == "other processes took 40% of the CPU"


def test_the_usual_clock_is_the_median_of_those_that_could_be_read() -> None:
    runs: list[Any] = [a_run_beside(0.0, mhz=mhz) for mhz in (3000.0, None, 2000.0, 3100.0)]
    assert usual_mhz(runs) == 3000.0
    assert usual_mhz(runs[1:2]) is None
    assert disturbance(runs[2], None) is None
