"""Which node this is: typed, from torchrun's variables, from Slurm's."""

from __future__ import annotations

import pytest

from harness.cluster.nodes import ALONE, Nodes, find_nodes, first_host
from harness.errors import BadInput

STEP = {
    "SLURM_JOB_ID": "41123",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "gpu[03-05,9]-ib,login",
}
"""As `srun -N2 --ntasks-per-node=1` of Slurm 22.05 sets them."""
KUBEFLOW = {"PET_NNODES": "3", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "job-0", "PET_MASTER_PORT": "23456"}


def test_nothing_said_is_one_node():
    assert find_nodes(None, None, None, {}) == find_nodes(1, None, None, {}) == ALONE


def test_typed_words_win_over_the_environment():
    assert find_nodes(2, 1, "a:29500", {}) == Nodes(2, 1, "a", 29500)
    assert find_nodes(None, None, None, STEP) == Nodes(2, 1, "gpu03-ib", 21123)
    assert find_nodes(None, 0, "b:1", STEP) == Nodes(2, 0, "b", 1)
    assert find_nodes(None, None, None, KUBEFLOW) == Nodes(3, 0, "job-0", 23456)
    assert find_nodes(None, None, None, KUBEFLOW | {"PET_RDZV_ENDPOINT": "c:5"}) == Nodes(3, 0, "c", 5)


def test_an_allocation_without_a_step_is_no_order():
    assert find_nodes(None, None, None, {"SLURM_JOB_NUM_NODES": "4", "SLURM_NNODES": "4", "SLURM_NODEID": "0"}) == ALONE
    assert find_nodes(None, None, None, STEP | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}) == ALONE


@pytest.mark.parametrize(
    ("words", "environ", "key"),
    [
        ((2, 0, None), {}, "--rdzv-endpoint"),
        ((2, None, "a:1"), {}, "--node-rank"),
        ((2, 2, "a:1"), {}, "--node-rank"),
        ((2, 0, "a"), {}, "--rdzv-endpoint"),
        ((2, 0, "a:http"), {}, "--rdzv-endpoint"),
        ((0, 0, "a:1"), {}, "--nnodes"),
        ((None, None, None), {"PET_NNODES": "1:4"}, "PET_NNODES"),
        ((None, None, None), STEP | {"SLURM_STEP_NUM_TASKS": "16"}, "SLURM_STEP_NUM_TASKS"),
    ],
)
def test_what_does_not_fit_is_said(words, environ, key):
    with pytest.raises(BadInput) as error:
        find_nodes(*words, environ)
    assert str(error.value).startswith(key)


@pytest.mark.parametrize(
    ("listed", "first"),
    [("a", "a"), ("a,b", "a"), ("n[1-2]", "n1"), ("n[07,9],m", "n07"), ("gpu[03-05,9]-ib,login", "gpu03-ib")],
)
def test_the_first_host_of_slurms_list(listed, first):
    assert first_host(listed) == first
