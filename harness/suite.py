"""A suite: the comparison to make, as its author wrote it. TOML in, typed settings out.

Nothing here is resolved or expanded: that is the work of `harness.planning`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from harness.backends.options import BackendOptions
from harness.backends.profile import ProfileSettings
from harness.cluster.resources import Slurm
from harness.data.shape import CAMERAS
from harness.errors import BadInput
from harness.libero.handicap import handicap_of
from harness.models import MODELS, SIZES, names_function
from harness.records import ADDED, Value, unknown_name
from harness.task_suites import INITIAL_STATES, EvaluationSuite, TaskSuite, task_count

CONTROLS = ("expert", "still")
"""Arms that need no checkpoint."""


def is_control(arm: str) -> bool:
    """Whether an arm acts inside the simulator process, without a policy: a control, or an expert with a flaw.

    Raises:
        BadInput: an expert with a flaw that there is not.
    """
    return arm in CONTROLS or handicap_of(arm) is not None


class Optimizer(Value):
    """Optimizer and its schedule. AdamW defaults are PyTorch's; Dexbotic's pi0 uses beta2 = 0.95."""

    name: Literal["adamw", "sgd"] = "adamw"
    lr: float = Field(default=1e-3, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: int = Field(default=0, ge=0)
    final_lr_share: float = Field(default=0.1, ge=0, le=1)
    """A cosine schedule ends at this share of `lr`."""


class CellSettings(Value):
    """Settings of a cell that a suite may give for all cells, per model, or per backend; the latter wins."""

    ranks: int = Field(default=2, ge=1)
    stack: Literal["native", "trainer", "external"] = "native"
    """`native`: our own loop. `trainer`: Hugging Face's Trainer and accelerate around the same model and data.
    `external`: somebody's own script, which builds a Trainer; it is given `--train-backend`."""
    entry: tuple[str, ...] | None = Field(default=None, min_length=1)
    """The script of an `external` cell and its arguments; the model, data and optimizer are the script's own."""
    precision: Literal["fp32", "bf16"] = "fp32"
    micro_batch: int = Field(default=8, ge=1)
    accumulation: int = Field(default=1, ge=1)
    clip: float = Field(default=1.0, ge=0)
    """Largest global gradient norm; 0 switches clipping off."""
    activation_checkpointing: bool = False
    layout: Literal["joint", "raw"] = "joint"
    """`raw`: pi0, pi05 and dm0 read the inside of their layers from the root's forward, as Dexbotic does; then FSDP
    can wrap the root only, and recomputation finds no layer that is called. `joint`: a layer is a module."""
    state_in_prompt: bool = False
    """The prompt tells the robot's state too, in 256 bins: pi05's way, but not openpi's or Dexbotic's on LIBERO."""
    frozen: list[Literal["vision", "vlm"]] = []
    """Parts that do not train: `vision` is the tower that sees pixels, `vlm` tower, projector and language model."""
    profile: ProfileSettings = ProfileSettings()
    """Replaces, key by key, what the model declares of its sharding."""
    optimizer: Optimizer = Optimizer()


Normalisation = Literal["z-score", "quantile", "clipped-quantile", "min-max"]
"""How values become what a model reads: `harness.data.statistics` has the formulas."""


class Reading(Value):
    """How demonstrations are read by one model: in `[data]` for all of a suite, in `[models.KEY.reading]` for one."""

    normalisation: Normalisation = "z-score"
    delta_actions: bool = False
    """Actions are told relative to the pose they are looked at from, the gripper aside."""
    tokenizer: str | None = None
    """A folder with the checkpoint's own tokenizer files; without one, words are numbered."""


class ModelEntry(CellSettings):
    """`[models.KEY]`."""

    model: str
    """A name of ours, or "module:function" of any package: see docs/adding-a-model.md."""
    size: str = "micro"
    init: str | None = None
    """Initial weights: a safetensors file or a folder, in any of the model's formats. Left out: fresh from the seed."""
    reading: Reading | None = None
    """What it gives replaces the same keys of `[data]` for this model."""
    learning_steps: int | None = Field(default=None, ge=1)
    """Replaces `learning.steps` for this model."""

    @field_validator("model")
    @classmethod
    def _model_is_known(cls, name: str) -> str:
        if name not in MODELS and not names_function(name):
            raise unknown_name("a known model, or module:function", MODELS)
        return name

    @field_validator("size")
    @classmethod
    def _size_is_known(cls, size: str, info: ValidationInfo) -> str:
        if info.data.get("model") in MODELS and size not in SIZES:
            raise unknown_name(f"a size of {info.data['model']}", SIZES)
        return size


class BackendEntry(Value):
    """`[backends.KEY]`: in the file, the backend's options and settings of the cell stand side by side."""

    options: BackendOptions
    settings: CellSettings = CellSettings()

    @model_validator(mode="before")
    @classmethod
    def _split(cls, flat: Any) -> Any:
        if not isinstance(flat, dict) or "options" in flat:
            return flat
        settings = {key: value for key, value in flat.items() if key in CellSettings.model_fields}
        return {"options": {k: v for k, v in flat.items() if k not in settings}, "settings": settings}


class Data(Reading):
    """Where training samples come from."""

    source: Literal["expert", "libero_hdf5", "lerobot", "dexdata", "synthetic"] = "synthetic"
    path: str | None = None
    """A folder: of `<task name>_demo.hdf5` files (`libero_hdf5`), a data set (`lerobot`), a tree of .jsonl files
    (`dexdata`)."""
    cameras: dict[str, str] = {}
    """`lerobot`, `dexdata`: camera of the simulator → image key of the set, where it is not one of the usual."""
    first_episodes: int | None = Field(default=None, ge=1)
    """`lerobot`, `dexdata`: only so many episodes of the set; None for all."""
    skip_damaged: bool = False
    """Leaves damaged episodes out, and names them in the record, where otherwise the first one stops the run."""
    task_suite: TaskSuite = "libero_object"
    tasks: list[int] = Field(default=[0], min_length=1)
    episodes: int = Field(default=25, ge=1, description="demonstrations per task")
    action_noise: float = Field(default=0.25, ge=0, le=1)
    """`expert`: standard deviation of the noise on the executed (never the recorded) action."""
    frame_stride: int = Field(default=3, ge=1)
    """`expert`: camera frames are stored at every n-th control step."""
    object_jitter_m: Annotated[float, ADDED] = Field(default=0.02, ge=0, le=0.1)
    """`expert`: free-standing objects are moved by up to this much in x and y, metres, from where the task's own draw
    puts them."""

    @field_validator("cameras")
    @classmethod
    def _cameras_are_the_simulators(cls, cameras: dict[str, str]) -> dict[str, str]:
        if unknown := sorted(cameras.keys() - set(CAMERAS)):
            raise unknown_name(f"the simulator's cameras as keys, not {unknown[0]}", CAMERAS)
        return cameras


class Throughput(Value):
    """Short timed runs, in fresh process groups."""

    reference: str
    repeats: int = Field(default=2, ge=1)
    order: Literal["turns", "abba"] | None = None
    """`turns`: the runs of a repeat are alive together and run a few steps each, in turn. `abba`: one after the other.
    Left out: turns on CPU; on GPUs `abba`, since several cells need not fit there at once."""
    turn_steps: int = Field(default=2, ge=1)
    """Steps of a turn. Warm-up is one turn of its own."""
    disturbed_repeats: int = Field(default=1, ge=0)
    """A block that others disturbed is measured again, until so many of these repeats were disturbed as well."""
    steps: int = Field(default=30, ge=5)
    warmup_steps: int = Field(default=5, ge=1)


class Learning(Value):
    """Longer runs whose checkpoints are evaluated in simulation."""

    backends: list[str] = Field(min_length=1)
    training_seeds: list[int] = Field(default=[0], min_length=1)
    steps: int = Field(ge=1)
    checkpoint_every: int = Field(default=200, ge=1)
    micro_batch: int | None = Field(default=None, ge=1)
    """Overrides the default micro-batch for learning runs."""
    optimizer: Optimizer | None = None


class Scope(Value):
    """Some tasks of one task suite, each from some of its initial states."""

    task_suite: EvaluationSuite
    tasks: list[int] = Field(min_length=1)
    initial_states: str = "0-49"
    """Comma-separated numbers and inclusive ranges: "0,3,40-49"."""

    @field_validator("tasks")
    @classmethod
    def _tasks_exist(cls, tasks: list[int], info: ValidationInfo) -> list[int]:
        count = task_count(info.data.get("task_suite", ""))
        if any(not 0 <= task < count for task in tasks):
            raise ValueError(f"task numbers from 0 to {count - 1}")
        return tasks

    @field_validator("initial_states")
    @classmethod
    def _states_parse(cls, text: str) -> str:
        if any(not 0 <= state < INITIAL_STATES for state in parse_ranges(text)):
            raise ValueError("initial states from 0 to 49")
        return text

    def states(self) -> list[int]:
        return parse_ranges(self.initial_states)


BLINDED = (":no-images", ":wrong-instruction")
"""Endings of the names of arms that are kept from seeing something (`harness.policies.blinded`)."""


def blinding_of(arm: str) -> str | None:
    """Which of `BLINDED` an arm is; None where it sees everything. Such an arm is to be read beside the one that does,
    and is judged by nothing."""
    return next((ending for ending in BLINDED if arm.endswith(ending)), None)


ARMS = ("learned", *(f"learned{ending}" for ending in BLINDED), *CONTROLS)


def _arm(name: str) -> str:
    try:
        if name in ARMS or is_control(name):
            return name
    except BadInput as fault:
        raise unknown_name(fault.expected, fault.choices) from None
    raise unknown_name("an arm, or expert:… with a flaw such as noise=0.3", ARMS)


Arm = Annotated[str, AfterValidator(_arm)]


class Evaluation(Value):
    """Episodes in LIBERO. `learned` stands for every checkpoint of the learning runs; `learned:no-images` for the same
    on grey images, `learned:wrong-instruction` for the same with another task's; `expert:noise=0.3` and the like for an
    expert with a flaw (`harness.libero.handicap`)."""

    protocol: str = "micro"
    arms: list[Arm] = Field(default=["learned", "expert", "still"], min_length=1)
    scopes: list[Scope] = Field(min_length=1)
    replan_steps: int | None = Field(default=None, ge=1)
    """Actions executed per chunk, in place of the protocol's."""
    workers: int = Field(default=2, ge=1)
    executor: Literal["local", "ray"] = "local"
    """Where the simulator processes run: on this machine, or on a Ray cluster."""
    max_tries: int = Field(default=3, ge=1)
    """An episode whose simulator dies this often is an error, not a failure."""
    max_error_share: float = Field(default=0.1, ge=0, le=1)
    """More errors than this among an arm's episodes make the arm FAILED."""
    max_errors: int = Field(default=20, ge=1)
    """So many errors end an arm's evaluation for now; the next command tries those episodes again."""
    pass_mark: float | None = Field(default=None, gt=0, le=1)
    """The success rate that a policy must reach over its episodes."""
    stop_early: bool = False
    """Ends an arm's evaluation when no outcome of its remaining episodes could change whether it passes."""


class SmallestEffect(Value):
    """The smallest changes that matter: a relative step time, an absolute success rate."""

    step_seconds: float = Field(default=0.03, gt=0)
    success_rate: float = Field(default=0.05, gt=0, lt=1)
    peak_bytes: float = Field(default=0.01, gt=0)


class Gate(Value):
    """How sure a verdict must be."""

    false_alarm_rate: float = Field(default=0.001, gt=0, lt=0.5)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    run_noise: float = Field(default=0.01, gt=0)
    """Expected standard deviation of the log ratio of two like runs; used for planning only."""
    smallest_effect: SmallestEffect = SmallestEffect()


class Selection(Value):
    """What of a suite runs when the command line names nothing: a part that is quick enough for everybody."""

    models: list[str] = Field(min_length=1)
    backends: list[str] = Field(min_length=1)


class Suite(Value):
    """One TOML file, as written: which settings were given and which were left out stays visible."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    purpose: Literal["bench", "gate"] = "bench"
    """`gate` refuses a plan whose tests cannot fire; `bench` reports INCONCLUSIVE instead."""
    description: str = ""
    seed: int = Field(default=7, ge=0)
    defaults: CellSettings = CellSettings()
    data: Data = Data()
    models: dict[str, ModelEntry] = Field(min_length=1)
    backends: dict[str, BackendEntry] = Field(min_length=1)
    selection: Selection | None = None
    unsupported: dict[str, str] = {}
    """Cells (`model-backend`) that are known not to run on the machines the suite is for → the reason."""
    throughput: Throughput | None = None
    learning: Learning | None = None
    evaluation: Evaluation | None = None
    gate: Gate = Gate()
    slurm: Slurm = Slurm()


def parse_ranges(text: str) -> list[int]:
    """ "0,3,40-42" as [0, 3, 40, 41, 42]. Raises ValueError on anything else."""
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise ValueError('numbers and ranges such as "0,3,40-49"')
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f'a rising range, not "{part.strip()}"')
        numbers.extend(range(first, last + 1))
    return numbers
