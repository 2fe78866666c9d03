"""What else went on on the machine while a run was going. No torch here."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from harness.processes import descendants
from harness.train.records import HostConditions

_TICK = os.sysconf("SC_CLK_TCK")


class HostWatch:
    """Looks at the machine's counters when constructed and when asked."""

    def __init__(self) -> None:
        self._total, self._busy = _machine_seconds()
        self._ours = _our_seconds()

    def conditions(self) -> HostConditions:
        """Since the construction. What cannot be read is None."""
        total, busy = _machine_seconds()
        machine, foreign = total - self._total, (busy - self._busy) - (_our_seconds() - self._ours)
        return HostConditions(
            load_average=os.getloadavg()[0],
            foreign_cpu_share=min(1.0, max(0.0, foreign / machine)) if machine > 0 else None,
            cpu_mhz=_mean_mhz(),
            temperature_celsius=_hottest(),
            foreign_gpu_processes=_foreign_gpu_processes(),
        )


def _machine_seconds() -> tuple[float, float]:
    """CPU seconds of all cores since boot, and the busy ones among them (proc(5)); zeros where there is no /proc."""
    with contextlib.suppress(OSError):
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        idle = fields[3] + fields[4]
        return sum(fields) / _TICK, (sum(fields) - idle) / _TICK
    return 0.0, 0.0


def _our_seconds() -> float:
    """CPU seconds of this process, of its children that have ended, and of all living below it and theirs."""
    import psutil

    own = os.times()
    seconds = own.user + own.system + own.children_user + own.children_system
    for process in descendants(os.getpid()):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = process.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def busy_mhz() -> float | None:
    """Clock of the fastest core now. Asked while all ranks work, it is the clock they work at: idle cores go slower."""
    return max(_mhz(), default=None)


def _mean_mhz() -> float | None:
    found = _mhz()
    return sum(found) / len(found) if found else None


def _mhz() -> list[float]:
    """Of each core; empty where the kernel does not say."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return []


def _hottest() -> float | None:
    """Of the thermal zones the kernel shows; virtual machines often have none."""
    found = []
    for zone in Path("/sys/class/thermal").glob("thermal_zone*/temp"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(zone.read_text()) / 1000)
    return max(found, default=None)


def _foreign_gpu_processes() -> int | None:
    """Processes on the GPUs that are not below this one; None without `nvidia-smi`."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = [tool, "--query-compute-apps=pid", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    if answer.returncode != 0:
        return None
    found = {int(line) for line in answer.stdout.split() if line.isdigit()}
    return len(found - {process.pid for process in descendants(os.getpid())})
