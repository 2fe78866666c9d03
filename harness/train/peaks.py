"""What known devices could do at most, and how much of it a run used. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_H100 = {"bfloat16": 989.4, "float32": 66.9}
_A100 = {"bfloat16": 312.0, "float32": 19.5}

PEAK_TFLOPS: Mapping[str, Mapping[str, float]] = {
    "NVIDIA B200": {"bfloat16": 2250.0, "float32": 75.0},
    "NVIDIA H200": _H100,
    "NVIDIA H100 80GB HBM3": _H100,
    "NVIDIA H100 PCIe": {"bfloat16": 756.0, "float32": 51.0},
    "NVIDIA A100-SXM4-40GB": _A100,
    "NVIDIA A100-SXM4-80GB": _A100,
    "NVIDIA A100-PCIE-40GB": _A100,
    "NVIDIA A100 80GB PCIe": _A100,
    "NVIDIA L40S": {"bfloat16": 362.0, "float32": 91.6},
    "NVIDIA L4": {"bfloat16": 121.0, "float32": 30.3},
    "NVIDIA GeForce RTX 4090": {"bfloat16": 165.2, "float32": 82.6},
}
"""Device as `nvidia-smi` names it → dtype → dense 10^12 operations a second, without sparsity; float32 is without TF32,
as PyTorch's matrix products are by default. Source: NVIDIA's data sheets of each product (B200: HGX B200, per GPU;
RTX 4090: the Ada architecture white paper, with float32 accumulation)."""


def peak_flops(gpus: Sequence[str], dtype: str) -> float | None:
    """Operations a second of one device; None when it is not in the table, or devices differ."""
    kinds = set(gpus)
    if len(kinds) != 1:
        return None
    tflops = PEAK_TFLOPS.get(kinds.pop(), {}).get(dtype)
    return None if tflops is None else tflops * 1e12


def utilisation(
    flops_per_sample: int | None, samples_per_second: float, ranks: int, peak_flops_per_second: float | None
) -> float | None:
    """Share of the peak of all ranks' devices; None where one side is not known.

    With the operations of the model alone this is MFU, with recomputation counted in it is HFU (Chowdhery et al.
    2022, PaLM, appendix B).
    """
    if flops_per_sample is None or peak_flops_per_second is None:
        return None
    return flops_per_sample * samples_per_second / (ranks * peak_flops_per_second)
