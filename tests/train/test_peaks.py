import pytest

from harness.train.peaks import PEAK_TFLOPS, peak_flops, utilisation


def test_utilisation_is_work_over_what_all_devices_could_do():
    peak = peak_flops(["NVIDIA H100 80GB HBM3"] * 8, "bfloat16")
    assert peak == pytest.approx(989.4e12)
    assert utilisation(10**12, 8 * 0.4 * 989.4, ranks=8, peak_flops_per_second=peak) == pytest.approx(0.4)


def test_what_is_not_known_has_no_utilisation():
    assert peak_flops([], "float32") is None
    assert peak_flops(["Some Future Device"], "bfloat16") is None
    assert peak_flops(["NVIDIA H200", "NVIDIA L4"], "bfloat16") is None
    assert peak_flops(["NVIDIA H200"], "float8") is None
    assert utilisation(None, 1.0, 1, 1e12) is None
    assert utilisation(1, 1.0, 1, None) is None


def test_no_device_is_faster_in_float32():
    assert all(peaks["float32"] < peaks["bfloat16"] for peaks in PEAK_TFLOPS.values())
