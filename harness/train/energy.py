"""Energy a GPU has used, from the counter NVML keeps. No torch here; no package, the driver's own library is asked."""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0


class EnergyCounter:
    """The energy counter of one GPU (Volta and later). It counts all that the GPU does, whoever asked for it."""

    def __init__(self, uuid: str, library: str = LIBRARY) -> None:
        """
        Args:
            uuid: the GPU's, without its prefix.
            library: NVML.

        Raises:
            OSError: there is no NVML, or it does not know the GPU or counts no energy on it.
        """
        self._nvml: Any = ctypes.CDLL(library)
        self._device = ctypes.c_void_p()
        self._ask("nvmlInit_v2")
        self._ask("nvmlDeviceGetHandleByUUID", f"GPU-{uuid}".encode(), ctypes.byref(self._device))
        self.joules()

    def joules(self) -> float:
        """Since the driver was loaded. Raises OSError."""
        millijoules = ctypes.c_ulonglong()
        self._ask("nvmlDeviceGetTotalEnergyConsumption", self._device, ctypes.byref(millijoules))
        return millijoules.value / 1e3

    def _ask(self, function: str, *arguments: Any) -> None:
        try:
            code = getattr(self._nvml, function)(*arguments)
        except AttributeError:
            raise OSError(f"{LIBRARY} has no {function}") from None
        if code != _SUCCESS:
            raise OSError(f"{function} answers {code}")
