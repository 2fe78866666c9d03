"""What this machine has, what it lacks, and how to mend each fault."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.machine import fingerprint
from harness.records import Value

GIB = 2**30


class Finding(Value):
    """One row of the table. What is not `ok` but not `required` is only a remark."""

    name: str
    found: str
    ok: bool
    required: bool = True
    mend: str = ""


def examine(results: Path) -> list[Finding]:
    """All checks, in the order of the table. Starts a small simulation; takes some seconds."""
    return [*_python(), *_libraries(), *_simulation(), *_hardware(), *_disk(results)]


def _python() -> list[Finding]:
    right = sys.version_info >= (3, 11)
    return [Finding(name="Python", found=sys.version.split()[0], ok=right, mend="install Python 3.11 or newer")]


def _libraries() -> list[Finding]:
    lowest = {"torch": "2.6", "deepspeed": "0.17", "transformers": "4.57.6", "accelerate": "1.10"}
    findings = []
    for name, minimum in lowest.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            findings.append(Finding(name=name, found="missing", ok=False, mend=f"pip install '{name}>={minimum}'"))
            continue
        right = _release(found) >= _release(minimum)
        findings.append(Finding(name=name, found=found, ok=right, mend=f"pip install -U '{name}>={minimum}'"))
    compiler = shutil.which("g++") and shutil.which("ninja")
    findings.append(
        Finding(
            name="compiler",
            found="g++ and ninja" if compiler else "none",
            ok=bool(compiler),
            required=False,
            mend="only DeepSpeed's own Adam and offloading need one: apt-get install g++ ninja-build",
        )
    )
    return findings


def _release(text: str) -> tuple[int, ...]:
    parts = text.partition("+")[0].split(".")
    return tuple(int(part) for part in parts if part.isdigit())


def _simulation() -> list[Finding]:
    from harness.libero.probe import check_machine

    return [
        Finding(name=check.name, found=check.detail, ok=check.ok, mend=check.mend or "") for check in check_machine()
    ]


def _hardware() -> list[Finding]:
    machine = fingerprint()
    gpus = ", ".join(machine.gpus) or "none: ranks run on the CPU with gloo"
    return [
        Finding(name="GPUs", found=gpus, ok=bool(machine.gpus), required=False, mend="not needed for the micro suites"),
        Finding(name="cores", found=str(machine.cores), ok=machine.cores >= 2, mend="two ranks need two cores"),
        Finding(
            name="memory",
            found=f"{machine.memory_bytes / GIB:.0f} GiB",
            ok=machine.memory_bytes > 7 * GIB,
            mend="the micro suites need about 8 GiB",
        ),
        Finding(name="hardware key", found=machine.hardware_key, ok=True),
    ]


def _disk(results: Path) -> list[Finding]:
    folder = next(path for path in (results.resolve(), *results.resolve().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    return [
        Finding(
            name="disk",
            found=f"{free / GIB:.0f} GiB free" if writable else f"{folder} cannot be written",
            ok=free > 2 * GIB and writable,
            mend="free 2 GiB (`harness clean` helps), or name another folder with --results",
        )
    ]
