"""The fingerprint of hardware and software, and the hardware key a baseline is filed under."""

from __future__ import annotations

from harness.records import Value


class Fingerprint(Value):
    """Where a record was made. `hardware_key` decides comparability."""

    hardware_key: str
    """For example `cpu-amd-epyc-2c-24g` or `8x-nvidia-h100-80gb`."""
    hostname: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: list[str]
    kernel: str
    python: str
    versions: dict[str, str]
    """Distribution name → version, of torch, deepspeed, transformers, mujoco, robosuite, numpy."""
