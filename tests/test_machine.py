from __future__ import annotations

import pytest

from harness.machine import cpu_name, fingerprint, hardware_key

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


def cpuinfo(name: str, family: int, model: int) -> str:
    return f"processor\t: 0\nvendor_id\t: any\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {name}\n\n"


def test_processors_that_hide_their_number_are_told_apart() -> None:
    older, newer = (cpu_name(2 * cpuinfo("AMD EPYC", family, 1)) for family in (25, 26))
    assert older == "AMD EPYC family 25 model 1"
    assert older != newer
    assert hardware_key(str(newer), 2, 24 * GIB, []) == "cpu-amd-epyc-family-26-model-1-2c-24g"
    hidden = cpu_name(cpuinfo("Intel(R) Xeon(R) CPU @ 2.20GHz", 6, 85))
    assert hardware_key(str(hidden), 8, 31 * GIB, []) == "cpu-intel-xeon-family-6-model-85-8c-31g"


def test_a_processor_that_says_what_it_is_is_taken_at_its_word() -> None:
    assert cpu_name(cpuinfo("AMD EPYC 7763 64-Core Processor", 25, 1)) == "AMD EPYC 7763 64-Core Processor"
    assert cpu_name("processor\t: 0\nBogoMIPS\t: 50.00\n") is None


def test_arm_processors_are_told_apart_by_their_part() -> None:
    graviton = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n"
    name = cpu_name(2 * graviton)
    assert name == "ARM 0x41 part 0xd40" != cpu_name(graviton.replace("0xd40", "0xd0c"))
    assert hardware_key(name, 64, 128 * GIB, []) == "cpu-arm-0x41-part-0xd40-64c-128g"


def test_the_fingerprint_holds_the_subjects() -> None:
    machine = fingerprint()
    assert {"torch", "deepspeed", "transformers", "mujoco", "robosuite"} <= set(machine.versions)
    assert machine.memory_bytes > GIB
    assert machine == fingerprint()
