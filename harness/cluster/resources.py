"""What a cluster's jobs ask for, as a suite says it."""

from __future__ import annotations

from pydantic import Field

from harness.records import Value


class Slurm(Value):
    """`[slurm]`: what each job of `harness run --on slurm` asks for. What is left out, the cluster decides."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    nodes: int = Field(default=1, ge=1)
    """Over which the ranks of a run are spread."""
    gpus_per_node: int | None = Field(default=None, ge=1)
    cpus_per_task: int | None = Field(default=None, ge=1)
    """Cores per node: a job has one task on each, which starts the ranks."""
    memory_gb: float | None = Field(default=None, gt=0)
    """Per node."""
    exclusive: bool = True
    """Whole nodes: others on a node would disturb what is timed there."""
    minutes: int = Field(default=60, ge=1)
    """Of one job. What has not ended by then is queued again and goes on from its last checkpoint."""
