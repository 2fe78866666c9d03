"""What will be done: cells, runs, arms and episodes, with nothing left to defaults. Made by `harness.planning`."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from harness.backends.options import BackendOptions
from harness.records import Record, Value
from harness.suite import CellSettings, Data, Evaluation, Gate
from harness.task_suites import EvaluationSuite


class Cell(CellSettings):
    """Everything that makes a training run what it is. Its identity is `identity`; the label is for people."""

    label: str
    """`<model key>-<backend key>`; model keys hold no dash."""
    model: str
    size: str
    init: str | None = None
    """Where the initial weights come from; None: fresh from the seed."""
    backend: BackendOptions
    data: Data

    @property
    def model_key(self) -> str:
        return model_key(self.label)

    @property
    def backend_key(self) -> str:
        return backend_key(self.label)

    @property
    def identity(self) -> str:
        return self.digest(exclude={"label"})

    @property
    def training_identity(self) -> str:
        """Without how the samples of a step are spread: what must be equal to resume on another number of ranks."""
        return self.digest(exclude={"label", "ranks", "micro_batch", "accumulation"})

    @property
    def samples_per_step(self) -> int:
        """Global batch: samples over all ranks and accumulation steps."""
        return self.ranks * self.micro_batch * self.accumulation


def model_key(label: str) -> str:
    """Of a cell's label."""
    return label.split("-", 1)[0]


def backend_key(label: str) -> str:
    """Of a cell's label."""
    return label.split("-", 1)[-1]


class RunKind(StrEnum):
    TIMING = "timing"
    LEARNING = "learning"


class Plant(Value):
    """A fault put into a run on purpose, to see whether the gate finds it (`harness drill`).

    It travels with the run into every record, so that a planted run is never taken for a measurement.
    """

    kind: Literal["sleep", "ballast", "gradient"]
    """`sleep`: every step lasts longer by a share. `ballast`: each rank holds so many MiB more. `gradient`: the
    first rank's gradients have the wrong sign."""
    amount: float = Field(default=0.0, ge=0)
    """Share of the step, or MiB; nothing to `gradient`."""


class PlannedRun(Value):
    """One fresh process group to be started."""

    cell: Cell
    kind: RunKind
    repeat: int
    """Timing runs: which repeat. Learning runs: the index of the training seed."""
    training_seed: int
    steps: int
    warmup_steps: int = 0
    checkpoint_every: int | None = None
    planted: Plant | None = None
    python: str | None = None
    """Interpreter of another environment, for the old side of a bridge; None: the harness's own."""
    block: str | None = None
    """Runs of one block are alive together and take turns. None: the run has the machine to itself."""
    turn_steps: int | None = None
    """Steps of a turn; None without a block."""

    @property
    def key(self) -> str:
        """Unique in its plan, and fit for a folder name."""
        return f"{self.cell.label}/{self.kind}-{self.repeat}"


class Unsupported(Value):
    """A cell that this backend or machine cannot run, and why. It is shown, and spoils nothing."""

    label: str
    reason: str


class EpisodeKey(Value):
    """What an episode depends on, besides the policy. Pairs are made by this key."""

    task_suite: EvaluationSuite
    task: int
    initial_state: int
    seed: int


class PlannedArm(Value):
    """A policy to evaluate: a learning run's checkpoint, or a control."""

    name: str
    """`expert`, `still`, `expert:…` with a handicap, or the learnt cell's label with its training seed, and with an
    ending of `BLINDED` where it is kept from seeing something."""
    run_key: str | None = None
    """The learning run whose export is the policy; None for controls."""
    checkpoint: str | None = None
    """An export folder given by hand, when there is no such run."""
    url: str | None = None
    """A policy server, see `harness.policies.remote`."""


class Plan(Record):
    """What will be done, in order, with nothing left to defaults. Saved beside its results."""

    SCHEMA = 1
    suite: str
    purpose: Literal["bench", "gate"]
    seed: int
    hardware_key: str
    """Where it runs. A result is never continued on another kind of machine."""
    nodes: int = 1
    """Hosts over which the ranks of a run are spread."""
    order_note: str | None = None
    """Why timing runs take no turns where the suite asks for them."""
    runs: list[PlannedRun]
    unsupported: list[Unsupported]
    reference: str | None
    """Backend key every speedup is against."""
    disturbed_repeats: int = 0
    """`Throughput.disturbed_repeats`; 0 in plans made before there was such a thing."""
    arms: list[PlannedArm]
    episodes: list[EpisodeKey]
    evaluation: Evaluation | None
    gate: Gate
    confirmations: list[PlannedRun] = []
    """Fresh processes for what the first stage of the gate calls worse; run only then."""
    confirmation_episodes: list[EpisodeKey] = []
    """Likewise fresh episodes: the same initial states under another seed."""

    @property
    def data(self) -> Data:
        """All cells of a suite train on the same episodes; how they are read is each cell's own matter."""
        return self.runs[0].cell.data if self.runs else Data()

    @property
    def workers(self) -> int:
        """Simulator processes."""
        return self.evaluation.workers if self.evaluation else Evaluation.model_fields["workers"].default

    @property
    def needs_demonstrations(self) -> bool:
        return any(run.cell.data.source == "expert" for run in self.runs)
