"""The whole of what a rank does, for one rank in this process."""

from __future__ import annotations

import json
from pathlib import Path

import native_runs as native
import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from harness.models import build
from harness.models.flops import count
from harness.store import read_record
from harness.train.journal import failure_file, read_rows, report_file, steps_file
from harness.train.records import RankFailure, RankReport, RunSpec
from harness.train.worker import Training, explained_failure
from harness.train.world import World


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> tuple[RankReport, Path]:
    """A run of four steps with a trace behind it."""
    folder = tmp_path_factory.mktemp("run")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    order: RunSpec = native.spec(folder, native.cell("fsdp2", ranks=1), steps=4)
    Training(order.model_copy(update={"trace": True}), World(0, 1, torch.device("cpu"))).run()
    dist.destroy_process_group()
    return read_record(report_file(folder, 0), RankReport), folder


def test_traced_steps_are_in_no_row_and_no_figure(report):
    found, folder = report
    assert [row.step for row in read_rows(steps_file(folder, 0))] == [0, 1, 2, 3]
    events = json.loads((folder / "trace" / "rank-0.json").read_text())["traceEvents"]
    names = {event.get("name") for event in events}
    assert {"aten::addmm", "Optimizer.step#AdamW.step"} <= names
    assert found.collectives is not None
    assert found.exposed_communication_share is None and found.phase_peaks is None


def test_operations_are_counted_as_on_meta(report):
    with torch.device("meta"):
        expected = count(build("pi0", "tiny")).training
    assert report[0].workload.training_flops_per_sample == expected
    assert report[0].workload.hardware_flops_per_sample == expected


@pytest.mark.parametrize(("rank", "waited"), [(0, True), (1, False)])
def test_a_checkpoint_that_fails_on_one_rank_is_told_in_its_words_by_all(rank, waited, tmp_path):
    """PyTorch raises it on every rank, as something that is no `Exception`."""
    error = CheckpointException("load", {1: (RuntimeError("Missing key: a.b"), None)})
    with pytest.raises(CheckpointException), explained_failure(tmp_path, rank):
        raise error
    told = read_record(failure_file(tmp_path, rank), RankFailure)
    assert (told.reason, told.waited) == ("RuntimeError: Missing key: a.b", waited)
