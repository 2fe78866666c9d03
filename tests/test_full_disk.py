from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 kB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.full
def test_a_full_disk_is_one_clear_error_and_exit_code_2(small_disk: Path) -> None:
    results = small_disk / "results"
    (small_disk / "ballast").write_bytes(b"x" * 130_000)
    command = ["train", "--size", "tiny", "--train-backend", "ddp", "--steps", "5", "--results", str(results)]
    answer = subprocess.run(
        [sys.executable, "-m", "harness", *command], capture_output=True, text=True, timeout=300, check=False
    )
    assert answer.returncode == 2, answer.stdout + answer.stderr
    assert "the disk is full" in answer.stderr
    assert "Traceback" not in answer.stderr
