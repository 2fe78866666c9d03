import subprocess
import sys

import torch

from harness.train.memory import out_of_memory_kills, peak_resident_bytes, read_peaks, reset_peaks

CPU = torch.device("cpu")
CHUNK = 64 * 2**20


def test_peak_is_counted_from_the_reset():
    before = torch.ones(3 * CHUNK // 4)
    del before
    reset_peaks(CPU)
    low = peak_resident_bytes()
    spike = torch.ones(CHUNK // 4)
    held = spike.sum()
    del spike
    peaks = read_peaks(CPU)
    assert held > 0
    assert 0.9 * CHUNK < peaks.resident_bytes - low < 1.5 * CHUNK
    assert peaks.allocated_bytes is None and peaks.reserved_bytes is None


def test_out_of_memory_counter_is_a_count_or_unknown():
    kills = out_of_memory_kills()
    assert kills is None or kills >= 0


def test_launcher_needs_no_torch():
    code = "import sys, harness.train.launch; print([m for m in ('torch', 'pandas', 'pyarrow') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
