"""Which GPU a simulator process renders on.

EGL numbers devices in its own order, and takes no notice of `CUDA_VISIBLE_DEVICES`; robosuite takes one for the other.
Here EGL is asked which CUDA device each of its own is (`EGL_NV_device_cuda`), and processes are dealt out over the
visible ones. `python -m harness.libero.gpu` prints the mapping.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from ctypes.util import find_library
from dataclasses import asdict, dataclass
from pathlib import Path

_MOST_DEVICES = 64
_EGL_CUDA_DEVICE_NV = 0x323A
"""From the extension's specification, EGL_NV_device_cuda."""
_QUERY_SECONDS = 60.0


@dataclass(frozen=True)
class EglDevice:
    """One device as EGL numbers it.

    Attributes:
        egl: its index, what `MUJOCO_EGL_DEVICE_ID` takes.
        cuda: the index CUDA gives it without `CUDA_VISIBLE_DEVICES`; None for a device without CUDA.
    """

    egl: int
    cuda: int | None


def device_variables(number: int, devices: list[EglDevice], environment: Mapping[str, str]) -> dict[str, str]:
    """Environment that makes simulator `number` render on its GPU.

    Empty where there is no GPU, or where the user has chosen one by `MUJOCO_EGL_DEVICE_ID`. A simulator computes
    nothing by CUDA, and robosuite compares an EGL index with CUDA's list, hence that list is empty for it.

    Args:
        number: the simulator's place in the pool.
        devices: as `egl_devices`.
        environment: `CUDA_VISIBLE_DEVICES` in it restricts the choice, by CUDA's own indices.
    """
    if environment.get("MUJOCO_EGL_DEVICE_ID"):
        return {}
    gpus = [device for device in devices if device.cuda is not None]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        order = [int(part) for part in visible.split(",") if part.strip().isdigit()]
        gpus = [device for cuda in order for device in gpus if device.cuda == cuda]
    if not gpus:
        return {}
    return {"MUJOCO_EGL_DEVICE_ID": str(gpus[number % len(gpus)].egl), "CUDA_VISIBLE_DEVICES": ""}


def egl_devices() -> list[EglDevice]:
    """EGL's devices, asked in a process of its own. Empty on a machine without an NVIDIA GPU, or where EGL fails."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) or os.environ.get("MUJOCO_GL", "egl") != "egl":
        return []
    try:
        done = subprocess.run(
            [sys.executable, "-m", "harness.libero.gpu"],
            capture_output=True,
            text=True,
            timeout=_QUERY_SECONDS,
            check=True,
        )
        return [EglDevice(**fields) for fields in json.loads(done.stdout)]
    except (subprocess.SubprocessError, ValueError):
        return []


def _devices_here() -> list[EglDevice]:
    egl = ctypes.CDLL(find_library("EGL") or "libEGL.so.1")
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    handle, count = ctypes.c_void_p, ctypes.c_int(0)
    query_devices = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.POINTER(handle), ctypes.POINTER(ctypes.c_int))(
        egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    )
    query_attribute = ctypes.CFUNCTYPE(ctypes.c_uint, handle, ctypes.c_int, ctypes.POINTER(ctypes.c_ssize_t))(
        egl.eglGetProcAddress(b"eglQueryDeviceAttribEXT")
    )
    handles = (handle * _MOST_DEVICES)()
    if not query_devices(_MOST_DEVICES, handles, ctypes.byref(count)):
        return []
    found = []
    for index in range(count.value):
        cuda = ctypes.c_ssize_t(-1)
        known = query_attribute(handles[index], _EGL_CUDA_DEVICE_NV, ctypes.byref(cuda))
        found.append(EglDevice(index, int(cuda.value) if known else None))
    return found


if __name__ == "__main__":
    print(json.dumps([asdict(device) for device in _devices_here()]))
