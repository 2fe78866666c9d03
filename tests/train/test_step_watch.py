"""The clock of a step's phases, the GPU's energy counter and the count of compilations, each with a made-up source."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from harness.train.energy import EnergyCounter
from harness.train.phases import PhaseClock, PhaseSeconds
from harness.train.step_watch import StepWatch, compilations
from harness.train.world import World


class AloneWorld(World):
    """One rank that has nobody to wait for."""

    def synchronise(self) -> None:
        return None


def test_phases_add_up_over_micro_batches() -> None:
    times = iter([0.0, 1.0, 3.0, 4.0, 7.0, 9.0])
    clock = PhaseClock(lambda: next(times))
    clock.begin()
    for phase in ("forward", "backward", "forward", "backward", "optimizer"):
        clock.ended(phase)
    assert clock.read() == PhaseSeconds(forward=2.0, backward=5.0, optimizer=2.0)


def test_moments_are_compared_only_when_the_step_is_over() -> None:
    compared: list[tuple[int, int]] = []
    moments = iter(range(9))

    def between(earlier: int, later: int) -> float:
        compared.append((earlier, later))
        return float(later - earlier)

    clock = PhaseClock(lambda: next(moments), between)
    clock.ended("forward")  # before a step has begun: a trace, a checkpoint
    clock.begin()
    clock.ended("forward")
    clock.ended("optimizer")
    assert compared == []
    assert clock.read() == PhaseSeconds(1.0, 0.0, 1.0)
    clock.ended("backward")
    assert clock.read() == PhaseSeconds(0.0, 0.0, 0.0)


def test_a_step_on_the_cpu_has_phases_within_its_time_and_no_energy() -> None:
    watch = StepWatch(AloneWorld(0, 1, torch.device("cpu")))
    watch.start()
    torch.ones(200, 200) @ torch.ones(200, 200)
    watch.phases.ended("forward")
    lap = watch.stop()
    assert 0 < lap.phases.forward + lap.phases.optimizer <= lap.wall_seconds
    assert lap.joules is None and not lap.compiled


def test_a_step_that_compiles_is_marked() -> None:
    watch = StepWatch(AloneWorld(0, 1, torch.device("cpu")))
    watch.start()
    before = compilations()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert compilations() == before + 1
    assert watch.stop().compiled
    watch.start()
    assert not watch.stop().compiled


NVML = """
#include <string.h>
static unsigned long long used = 5000;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = &used;
    return strcmp(uuid, "GPU-known") == 0 ? 0 : 6;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy) {
    *energy = *(unsigned long long *)device;
    used += 2500;
    return 0;
}
"""


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library with NVML's calls whose one GPU uses 2.5 J between any two questions."""
    folder: Path = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    done = subprocess.run(["cc", "-shared", "-fPIC", "-o", "libnvml.so", "nvml.c"], cwd=folder, check=False)
    if done.returncode:
        pytest.skip("no C compiler")
    return str(folder / "libnvml.so")


def test_energy_is_read_in_joules(nvml: str) -> None:
    counter = EnergyCounter("known", nvml)
    first = counter.joules()
    assert counter.joules() - first == pytest.approx(2.5)


def test_what_counts_no_energy_raises(nvml: str) -> None:
    with pytest.raises(OSError, match="nvmlDeviceGetHandleByUUID answers 6"):
        EnergyCounter("unknown", nvml)
    with pytest.raises(OSError, match="no-such-library"):
        EnergyCounter("known", "no-such-library.so")
    with pytest.raises(OSError, match="has no nvmlInit_v2"):
        EnergyCounter("known", "libm.so.6")
