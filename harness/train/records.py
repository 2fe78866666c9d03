"""What launcher and ranks say to each other, and what stays of a run. No torch here."""

from __future__ import annotations

from enum import StrEnum

from harness.machine import Fingerprint
from harness.plan import PlannedRun
from harness.records import Record, Value
from harness.suite import Optimizer


class Outcome(StrEnum):
    """How a run ended. Everything but OK has a reason and no figures."""

    OK = "OK"
    OOM = "OOM"
    CRASHED = "CRASHED"
    HUNG = "HUNG"
    DIVERGED = "DIVERGED"
    INTERRUPTED = "INTERRUPTED"
    UNSUPPORTED = "UNSUPPORTED"


class InTurns(Value):
    """The company in which a run took turns."""

    block: str
    """Runs with the same text here were alive together; no other execution has it."""
    runs: list[str]
    """`PlannedRun.key` of all of them, in the order of the first round."""
    turn_steps: int


class RunSpec(Record):
    """The order to the ranks: `spec.json` in the attempt's folder, the worker's only argument."""

    run: PlannedRun
    attempt: int
    seed: int
    """Seeds the initial weights, the order of samples, the noise. Equal for all cells under comparison."""
    folder: str
    """The attempt's folder; ranks write only here."""
    data_folder: str | None
    """Demonstrations, for every source but `synthetic`."""
    data_cache: str | None = None
    """Where decoded frames are kept between runs; None decodes them anew."""
    resume_from: str | None
    """A complete checkpoint folder of an earlier attempt (`checkpoint/step-N`)."""
    collective_timeout_seconds: float = 1800.0
    """After this a collective that waits for a missing rank fails. The launcher sets it above its own limit."""
    in_turns: InTurns | None = None
    """Set by the launcher, as is the next, when the run shares the machine."""
    baton: str | None = None
    """Where the ranks ask for their turns (`harness.train.turns`)."""


class InForce(Value):
    """What was really built, read back from the live objects, never copied from the request."""

    backend: str
    resolved_mode: str = "native"
    """The path by which it was built: `native`, `trainer_fsdp2_native`, `accelerate_fsdp2_plugin`, `trainer_ddp` …"""
    wrapper: str
    """Class of the object that runs the forward: `DistributedDataParallel`, `FSDPPi0`, `DeepSpeedEngine` …"""
    parameter_class: str
    """`Parameter` or `DTensor`: the proof that FSDP2 took hold."""
    sharded_units: int
    """Wrapped modules (FSDP1, FSDP2); 0 where the idea does not apply."""
    zero_stage: int | None
    world_size: int
    collective_backend: str
    parameter_dtype: str
    """What the forward finds its parameters in."""
    autocast_dtype: str | None = None
    """What `torch.autocast` computes in, over the parameters' dtype; None where it is off."""
    master_dtype: str
    """What the optimizer updates."""
    reduce_dtype: str
    micro_batch: int
    accumulation: int
    clip: float
    activation_checkpointing: bool
    optimizer_class: str
    optimizer: Optimizer


COMPLETE = "complete.json"
"""A checkpoint folder without this file is a cut-off one."""


class CheckpointMark(Record):
    """`complete.json`, written into a checkpoint when every rank's part is on disk."""

    SCHEMA = 2
    cell_identity: str
    training_identity: str
    """`Cell.training_identity`: equal in cells that spread the same training over other ranks."""
    ranks: int
    samples_per_step: int
    versions: dict[str, str]
    """Of torch, and of what else the backend and the stack are made of, by distribution."""
    checkpoint_bytes: int
    in_force: InForce
    """What wrote the checkpoint; it stands for a resumed run that has no step left to make."""


class Workload(Value):
    """Facts that must agree before two runs may be compared."""

    parameters: int
    trainable_parameters: int
    initial_weights_sha256: str
    data_sha256: str
    """Over the first `hashed_batches` batches of all ranks, in rank order."""
    hashed_batches: int
    damaged_episodes: tuple[str, ...] = ()
    """Episodes that `skip_damaged` left out, and what was wrong with each."""
    samples_per_step: int
    tokens_per_sample: int
    tokens_definition: str


class ShardBytes(Value):
    """Bytes this rank holds between two steps."""

    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int


class RankReport(Record):
    """`rank-<r>.json`, written by each rank when its run has ended well."""

    rank: int
    host: str
    workload: Workload
    in_force: InForce
    shard: ShardBytes
    peak_resident_bytes: int
    """High-water mark of the resident set after warm-up (CPU)."""
    peak_allocated_bytes: int | None
    """CUDA allocator peak after warm-up; None on CPU."""
    peak_reserved_bytes: int | None
    cpu_seconds_per_step: float | None
    """Median process CPU time of the measured steps; None when none was measured."""
    checkpoint_save_seconds: float | None
    checkpoint_load_seconds: float | None
    checkpoint_bytes: int | None


class RankFailure(Record):
    """`rank-<r>.failure.json`, written by a rank that ends with an exception."""

    rank: int
    outcome: Outcome
    reason: str
    """One line: the exception's class and message."""
    traceback: str
    waited: bool
    """The exception says that another rank is gone or late: that one is at fault."""
    at: float
    """Seconds since the epoch."""


class StepRow(Value):
    """One optimizer step on one rank; a line of `rank-<r>.steps.jsonl`. Times are in seconds.

    A loss or norm that is not finite is None: the run has DIVERGED.
    """

    step: int
    step_seconds: float
    data_seconds: float
    loss: float | None
    """Mean over the global batch."""
    gradient_norm: float | None
    """Global norm before clipping."""
    learning_rate: float
    samples: int
    """Global."""
    tokens: int
    """Global."""
    resumed: bool = False
    """Carried over from an earlier attempt."""
    turn: int | None = None
    """Which of its process's turns the step was made in; 0 is the warm-up. None in a run alone."""


class Speed(Value):
    """Figures of the measured steps (warm-up dropped). The slowest rank's time counts for all."""

    warmup_steps: int
    measured_steps: int
    median_step_seconds: float
    p95_step_seconds: float
    median_data_seconds: float
    samples_per_second: float
    tokens_per_second: float
    cpu_seconds_per_step: float
    steadiness: str
    """STEADY, SLOWING or UNSTEADY (`harness.train.meter`)."""
    turn_step_seconds: list[float] = []
    """Median step of each measured turn, in order; empty in a run alone."""


class Memory(Value):
    """Maximum over ranks."""

    peak_resident_bytes: int
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    shards: list[ShardBytes]
    """By rank."""


class Failure(Value):
    """Why a run has no figures. The first rank at fault, and its own words."""

    reason: str
    rank: int | None
    exit_code: int | None
    traceback: str | None


class RunRecord(Record):
    """`run.json`, written last: its presence means the attempt has ended and this is how."""

    run: PlannedRun
    attempt: int
    seed: int
    outcome: Outcome
    failure: Failure | None
    started_at: str
    """ISO 8601, UTC."""
    wall_seconds: float
    fingerprint: Fingerprint
    workload: Workload | None
    in_force: InForce | None
    speed: Speed | None
    memory: Memory | None
    final_loss: float | None
    """Mean loss of the last tenth of the steps, at least one."""
    checkpoint_save_seconds: float | None
    checkpoint_load_seconds: float | None
    checkpoint_bytes: int | None
    export: str | None
    """Folder of the exported policy, relative to the attempt's folder."""
    in_turns: InTurns | None = None
    """None: the run had the machine to itself."""
