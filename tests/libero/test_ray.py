"""A real Ray cluster of two nodes on this machine: the records are the local pool's."""

import numpy as np
import pytest
from episode_files import alike

from harness.errors import MachineFault
from harness.libero import ray_executor
from harness.libero.pool import ArmToPlay, evaluate
from harness.libero.protocol import preset
from harness.plan import EpisodeKey
from harness.policies.fixed import FixedPolicy

pytestmark = pytest.mark.full  # `nox -s tests-full` installs ray, which is an extra

PROTOCOL = preset("micro").model_copy(update={"step_budgets": {"libero_object": 12}})
KEYS = [EpisodeKey(task_suite="libero_object", task=0, initial_state=state, seed=7) for state in range(3)]


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "memory": 3 * 2**30, "object_store_memory": 100 * 2**20}
    made = Cluster(initialize_head=True, connect=False, head_node_args={**node, "include_dashboard": False})
    made.add_node(**node)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def play(workers, executor, keys=KEYS):
    policy = FixedPolicy(np.tile(np.array([0.5, 0, -0.5, 0, 0, 0, -1], np.float32), (8, 1)))
    arms = [ArmToPlay("mine", keys, policy, None), ArmToPlay("still", keys[:1], None, None)]
    records = []

    def on_record(record):
        records.append(record)
        return ()

    report = evaluate(arms, PROTOCOL, workers=workers, max_tries=2, on_record=on_record, executor=executor)
    return report, alike({(record.arm, record.key): record for record in records})


def test_two_nodes_give_the_local_pools_records(cluster, monkeypatch):
    from ray import is_initialized

    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    report, spread = play(2, ray_executor.RayExecutor())
    _, local = play(1, None)
    assert len(spread) == 4
    assert spread == local
    assert report.errors == report.replaced == 0
    assert not is_initialized()


def test_errors_are_the_same_over_two_nodes(cluster, monkeypatch):
    """A task that is not there: the whole way to the simulators and back, without their cost."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    keys = [key.model_copy(update={"task": 99}) for key in KEYS]
    report, spread = play(2, ray_executor.RayExecutor(), keys)
    _, local = play(1, None, keys)
    assert spread == local
    assert {record.outcome for record in spread.values()} == {"error"}
    assert "a task number from 0 to 9, 2 times" in next(iter(spread.values())).reason
    assert (report.episodes, report.errors, report.replaced) == (4, 4, 0)


def test_a_simulator_that_finds_no_place_is_named(cluster, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    monkeypatch.setattr(ray_executor, "PLACE_SECONDS", 5.0)
    monkeypatch.setattr(ray_executor, "_BYTES", 2**40)
    with pytest.raises(MachineFault, match="Ray found no place for simulator 0"):
        play(1, ray_executor.RayExecutor())
