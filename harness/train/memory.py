"""Peaks of memory, counted from the end of warm-up. Torch is imported only where a GPU is asked about."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_RESET_PEAK = "5"
"""Written to `/proc/self/clear_refs`, this sets the high-water mark back to the present size (proc(5))."""


@dataclass(frozen=True)
class Peaks:
    """Since the last `reset_peaks`, in bytes. The CUDA figures are the caching allocator's; None on CPU."""

    resident_bytes: int
    allocated_bytes: int | None
    reserved_bytes: int | None


def reset_peaks(device: torch.device) -> None:
    """Forgets the peaks so far. Where the kernel does not allow it, the resident peak stays the whole process's."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)


def read_peaks(device: torch.device) -> Peaks:
    resident = peak_resident_bytes()
    if device.type != "cuda":
        return Peaks(resident, None, None)
    import torch

    return Peaks(resident, torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device))


def peak_resident_bytes() -> int:
    """`VmHWM` of this process, or the lifetime peak of `getrusage` where there is no /proc."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_address_space(further_bytes: int) -> None:
    """Lets this process map so much more and no further: what is asked for beyond fails as on a full machine."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + further_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def out_of_memory_kills() -> int | None:
    """How often the kernel has killed for want of memory: in our own cgroup, else on the whole machine.

    None when neither counter can be read.
    """
    for path in (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")):
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return None
