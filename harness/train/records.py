"""What launcher and ranks say to each other, and what stays of a run. No torch here."""

from __future__ import annotations

from enum import StrEnum
from statistics import geometric_mean

from harness.machine import Fingerprint
from harness.plan import PlannedRun
from harness.records import Record, Value
from harness.train.facts import Collectives, InForce, PhasePeaks, ShardBytes, Workload


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
    keep_checkpoints: bool = False
    """Every checkpoint of the run stays, not the last one alone."""
    collective_timeout_seconds: float = 1800.0
    """After this a collective that waits for a missing rank fails. The launcher sets it above its own limit."""
    trace: bool = False
    """A profile of two further steps is wanted (`harness.train.trace`)."""
    address_space_bytes: int | None = None
    """What a rank may take beyond what it has after its imports (`RLIMIT_AS`); None: all there is."""
    in_turns: InTurns | None = None
    """Set by the launcher, as is the next, when the run shares the machine."""
    baton: str | None = None
    """Where the ranks ask for their turns (`harness.train.turns`)."""


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
    activation_bytes: int | None = None
    """What autograd keeps of one micro-batch for its backward, counted on `meta`; None for a model that looks at
    values, which tensors on `meta` do not have."""
    cpu_seconds_per_step: float | None
    """Median process CPU time of the measured steps; None when none was measured."""
    busy_cpu_mhz: float | None = None
    """Clock of the machine's fastest core right after the last step; None where the kernel does not say."""
    collectives: list[Collectives] | None = None
    """Of the last warm-up step, data collectives only; None with fewer than two warm-up steps."""
    exposed_communication_share: float | None = None
    """Share of the traced steps in which communication was not hidden behind computation; None without a trace on
    CUDA."""
    phase_peaks: PhasePeaks | None = None
    """Likewise."""
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
    phase: str = "starting"
    """What the rank was doing."""
    peak_resident_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    """CUDA allocator's peak since the end of warm-up, or since the start; None on CPU."""
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
    forward_seconds: float | None = None
    """Over all micro-batches, communication inside included, as are the next two; what is left of the step is the wait
    for other ranks at its end. In a merged row: of the rank whose three add up to most. None in older records."""
    backward_seconds: float | None = None
    optimizer_seconds: float | None = None
    """Clipping, update, clearing of gradients."""
    skew_seconds: float | None = None
    """In a merged row: how far apart the ranks were at the end of a phase, at most. Collectives pull them together."""
    joules: float | None = None
    """Used by this rank's GPU meanwhile, in a merged row by all of them; None where nothing counts it."""
    built: bool = False
    """The process's first step, in which backends build what they need on the way, or one in which something was
    compiled."""


class Speed(Value):
    """Figures of the measured steps (warm-up dropped). The slowest rank's time counts for all."""

    warmup_steps: int
    measured_steps: int
    median_step_seconds: float
    p95_step_seconds: float
    p99_step_seconds: float | None = None
    """None in older records, as may be the next four and `built_steps`."""
    median_forward_seconds: float | None = None
    """See `StepRow` for this and the next three."""
    median_backward_seconds: float | None = None
    median_optimizer_seconds: float | None = None
    median_skew_seconds: float | None = None
    median_data_seconds: float
    samples_per_second: float
    tokens_per_second: float
    cpu_seconds_per_step: float
    steadiness: str
    """STEADY, SLOWING or UNSTEADY (`harness.train.meter`)."""
    joules_per_sample: float | None = None
    """Of the GPUs, over the measured steps; None where nothing counts it."""
    built_steps: list[int] = []
    """Measured steps in which something was compiled: they are in the figures, and make them doubtful."""
    turn_step_seconds: list[float] = []
    """Median step of each measured turn, in order; empty in a run alone."""
    model_flops_per_second: float | None = None
    """Of all ranks together: counted operations of forward and backward."""
    mfu: float | None = None
    """Share of the devices' peak (`harness.train.peaks`), as is the next; None where the peak is not known."""
    hfu: float | None = None

    @property
    def step_seconds(self) -> float:
        """What a run contributes to comparisons: its median step, or in turns the geometric mean of its turns' medians.

        The ratio of two such means is the mean ratio of turns that stood side by side, so what the machine did to
        both in one round cancels in that round. (A median over all steps would let the machine's slow and fast times
        compete with each other.)
        """
        return geometric_mean(self.turn_step_seconds) if self.turn_step_seconds else self.median_step_seconds


class Memory(Value):
    """Maximum over ranks."""

    peak_resident_bytes: int
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    shards: list[ShardBytes]
    """By rank."""
    activation_bytes: int | None = None
    """See `RankReport`."""


class HostConditions(Value):
    """The machine while a run was going, start-up included. None: cannot be read there."""

    load_average: float
    """Over the last minute, at the end."""
    foreign_cpu_share: float | None
    """Share of all cores' time taken by processes that are not the harness's."""
    cpu_mhz: float | None
    """Mean over cores, at the end."""
    temperature_celsius: float | None
    foreign_gpu_processes: int | None
    """On the GPUs, at the end."""


class AgentEnd(Value):
    """How torchrun ended on one host."""

    exit_code: int
    """Negative for a signal."""
    out_of_memory_kills: int
    """By that host's kernel, while the run was going."""
    conditions: HostConditions


class HostRecord(Value):
    """One of several hosts of a run."""

    name: str
    address: str
    ranks: list[int]
    fingerprint: Fingerprint
    conditions: HostConditions | None
    """None: the host was lost."""


class Failure(Value):
    """Why a run has no figures. The first rank at fault, and its own words."""

    reason: str
    rank: int | None
    exit_code: int | None
    traceback: str | None
    phase: str | None = None
    """What the rank at fault was doing, where it says so itself."""
    peak_bytes: int | None = None
    """Out of memory: the peak that rank had reached, allocated on CUDA or else resident."""
    host: str | None = None
    """Where that rank was, in a run over several hosts; or the host that is lost, and then no rank is named."""


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
    collectives: list[Collectives] | None = None
    """Of one step, counted by the first rank in its last warm-up step; None where there was no second one."""
    exposed_communication_share: float | None = None
    """Of the worst rank (`RankReport`)."""
    phase_peaks: PhasePeaks | None = None
    """Of the first rank."""
    final_loss: float | None
    """Mean loss of the last tenth of the steps, at least one."""
    checkpoint_save_seconds: float | None
    checkpoint_load_seconds: float | None
    checkpoint_bytes: int | None
    export: str | None
    """Folder of the exported policy, relative to the attempt's folder."""
    in_turns: InTurns | None = None
    """None: the run had the machine to itself."""
    busy_cpu_mhz: float | None = None
    """Clock under the run's own load, of the slowest rank's machine (`RankReport`)."""
    host: HostConditions | None = None
    """Of the only host, or the first."""
    hosts: list[HostRecord] = []
    """All hosts of a run over several, by node; empty for a run on one."""
