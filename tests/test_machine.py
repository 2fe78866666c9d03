from __future__ import annotations

import pytest

from harness.machine import fingerprint, hardware_key

GIB = 2**30


@pytest.mark.parametrize(
    ("cpu", "cores", "memory", "gpus", "key"),
    [
        ("AMD EPYC", 2, int(23.5 * GIB), [], "cpu-amd-epyc-2c-24g"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", 8, 31 * GIB, [], "cpu-intel-xeon-8c-31g"),
        ("AMD EPYC", 96, 700 * GIB, ["NVIDIA H100 80GB HBM3"] * 8, "8x-nvidia-h100-80gb-hbm3"),
        ("AMD EPYC", 96, 700 * GIB, ["B", "A", "A"], "2x-a-1x-b"),
    ],
)
def test_a_hardware_key_names_what_sets_the_pace(cpu: str, cores: int, memory: int, gpus: list[str], key: str) -> None:
    assert hardware_key(cpu, cores, memory, gpus) == key


def test_the_fingerprint_holds_the_subjects() -> None:
    machine = fingerprint()
    assert {"torch", "deepspeed", "transformers", "mujoco", "robosuite"} <= set(machine.versions)
    assert machine.memory_bytes > GIB
    assert machine == fingerprint()
