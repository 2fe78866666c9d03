"""The trainer stack: the same model, data, clock and records, with Hugging Face's Trainer making the steps.

Only what must be equal to compare stacks is ours: batches, optimizer, learning rates, what is written down. Wrapping,
backward, reduction, clipping, checkpoints and resuming are Trainer's and accelerate's, as their users have them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer, TrainerCallback, TrainingArguments

from harness.backends import backend_module, prepare_model
from harness.backends.accelerate_cpu import fsdp_on_cpu
from harness.backends.checkpoint import begin_checkpoint, finish_checkpoint, open_checkpoint
from harness.backends.engine import BaseEngine, Parts
from harness.backends.modules import checkpoint_layers
from harness.backends.optimizer import build_optimizer
from harness.backends.probe import Probe
from harness.backends.short_parameters import planners_that_know
from harness.backends.trainer import TrainerSettings, confirmed_mode, keep_norms
from harness.models.base import VLA
from harness.plan import Cell
from harness.train.facts import InForce, ShardBytes
from harness.train.loop import LoopResult, Steps
from harness.train.meter import Stopwatch
from harness.train.schedule import learning_rate
from harness.train.step_watch import StepWatch

_BATCH = "batch"
"""The name of the models' one argument."""
_ZERO_RANKS = "the Trainer loads ZeRO's checkpoints as they are, one part per rank"


class TrainerStack:
    """One training under the Trainer. What `Engine` says of save, load, export and reading back holds here too."""

    def __init__(self, model: VLA, steps: Steps, folder: Path) -> None:
        """
        Args:
            steps: the run; `steps.first` is set by `load`'s caller before `train`.
            folder: for what the Trainer writes outside of checkpoints.
        """
        cell, device = steps.run.cell, steps.world.device
        self._cell, self._steps = cell, steps
        prepare_model(model, cell)
        settings: TrainerSettings = backend_module(cell).trainer_settings(cell, model)
        if cell.activation_checkpointing and "fsdp" not in settings.arguments:
            checkpoint_layers(model)  # accelerate recomputes FSDP's units itself
        if cell.backend.backend == "deepspeed":
            backend_module(cell).join_group(device)
        os.environ.update(settings.environment)
        arguments = TrainingArguments(**_arguments(cell, steps, folder) | settings.arguments)
        with fsdp_on_cpu() if device.type == "cpu" else nullcontext():
            self._trainer = MeteredTrainer(model, arguments, steps)
        plugin = getattr(self._trainer.accelerator.state, "fsdp_plugin", None)
        if plugin is not None:
            plugin.mixed_precision_policy = settings.mixed_precision_policy
        self._checkpoint: Path | None = None
        self._before_resume: InForce | None = None

    @property
    def load_seconds(self) -> float | None:
        """What Trainer's own loading took; None when nothing was loaded."""
        return self._trainer.load_seconds

    def load(self, folder: Path) -> None:
        """Checks a checkpoint; the Trainer loads it when it trains. Raises BadInput."""
        why_not = _ZERO_RANKS if self._cell.backend.backend == "deepspeed" else None
        self._before_resume = open_checkpoint(folder, self._cell, fixed_ranks=why_not).in_force
        (self._checkpoint,) = folder.glob("checkpoint-*")

    def train(self) -> LoopResult:
        """Makes the steps from `steps.first` on.

        Raises:
            DivergedError: a loss or a norm is not finite.
            MachineFault: the Trainer built something else than the backend that was asked for.
        """
        checkpoint = None if self._checkpoint is None else str(self._checkpoint)
        with planners_that_know():
            self._trainer.train(resume_from_checkpoint=checkpoint)
        return self._steps.result()

    def save(self, folder: Path) -> None:
        """A checkpoint in the Trainer's own format, marked complete when every rank's part is on disk."""
        begin_checkpoint(folder)
        self._trainer.write_checkpoint(folder)
        finish_checkpoint(folder, self._cell, self.in_force())

    def export(self, file: Path) -> None:
        self._engine.export(file)

    def shard_bytes(self) -> ShardBytes:
        return self._engine.shard_bytes()

    def in_force(self) -> InForce:
        made_none = self._before_resume is not None and self._steps.first == self._steps.run.steps
        return self._before_resume if made_none and self._before_resume else self._engine.in_force()

    @property
    def _engine(self) -> BaseEngine:
        return self._trainer.engine


class MeteredTrainer(Trainer):  # type: ignore[misc, unused-ignore]
    """Trainer with our batches, optimizer and rates, which leaves what its callback needs to write a step down.

    Attributes:
        engine: reads back what was built; there from the beginning of training.
        load_seconds: what loading a checkpoint took.
    """

    engine: BaseEngine

    def __init__(self, model: VLA, arguments: TrainingArguments, steps: Steps) -> None:
        self.probe, self.steps = Probe.of(model), steps
        self.load_seconds: float | None = None
        self._own_model, self._ready = model, Stopwatch()
        self.losses: list[Tensor] = []
        self.norm: float | None = None
        self.data_seconds = 0.0
        with _config_hidden(model):
            super().__init__(model=model, args=arguments, callbacks=[_Meter(self)])
        self._note_when_prepared()
        keep_norms(self.accelerator, self._keep_norm)

    def get_train_dataloader(self) -> Any:
        return _Batches(self.steps)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, *_: Any) -> tuple[list[Any], None]:
        """The micro-batches of one step, timed. No token counts: a model's loss is the mean over its micro-batch."""
        self.steps.begin(self.state.global_step)
        watch = Stopwatch()
        batches = list(islice(epoch_iterator, num_batches))
        self.data_seconds = watch.stop().wall_seconds
        return batches, None

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        trained = self.model if model is None else model
        self.optimizer = build_optimizer(trained.parameters(), self.steps.run.cell.optimizer, self.steps.world.device)
        self._torch_optimizer = self.optimizer
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:  # noqa: ARG002
        settings, run = self.steps.run.cell.optimizer, self.steps.run
        self.lr_scheduler = LambdaLR(
            self._torch_optimizer, lambda step: learning_rate(settings, step, run.steps) / settings.lr
        )
        self._created_lr_scheduler = True
        self._ready.start()
        return self.lr_scheduler

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        loss: Tensor = model(inputs[_BATCH])
        self.probe.forward_ended(micro_batch=inputs[_BATCH].actions.shape[0])
        self.losses.append(loss.detach().float())
        return loss

    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        loss: Tensor = super().training_step(*arguments, **named)
        self.probe.backward_ended()
        return loss

    def write_checkpoint(self, folder: Path) -> None:
        """Trainer's own checkpoint, as `folder/checkpoint-<step>`."""
        self.args.output_dir = str(folder)
        super()._save_checkpoint(self.model_wrapped, None)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:  # noqa: ARG002
        """Called by the Trainer when its callback asked for a checkpoint."""
        self.steps.checkpoint(self.state.global_step)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """As Trainer's, on an optimizer that has its state already.

        accelerate (1.15, `load_fsdp_optimizer`) asks FSDP1 for the layout of the state to load. Before the first step
        there is none, and Adam would go on without its moments, with no error. Asking through torch's own function
        makes the state first, as accelerate does for FSDP2.
        """
        if checkpoint is not None and self.steps.run.cell.backend.backend == "fsdp":
            from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

            get_optimizer_state_dict(self.model_wrapped, self._torch_optimizer)
        super()._load_optimizer_and_scheduler(checkpoint)

    def _note_when_prepared(self) -> None:
        """Loading a checkpoint can begin when accelerate has wrapped the last thing."""
        prepare = self.accelerator.prepare

        def prepared(*objects: Any, **named: Any) -> Any:
            result = prepare(*objects, **named)
            self._ready.start()
            return result

        self.accelerator.prepare = prepared

    def _keep_norm(self, norm: float) -> None:
        self.norm = norm

    def training_begins(self) -> None:
        """All is wrapped and loaded. Raises MachineFault when it is not the backend that was asked for."""
        cell, device = self.steps.run.cell, self.steps.world.device
        if self.steps.first:
            self.load_seconds = self._ready.stop().wall_seconds
        mode = confirmed_mode(self, cell.backend.backend)
        sharded = cell.backend.backend in ("fsdp", "fsdp2")
        model = self.model_wrapped if sharded else self._own_model
        parts = Parts(model, self.model_wrapped, self._torch_optimizer, self.probe, mode)
        self.engine = backend_module(cell).ENGINE(parts, cell, device)
        if self.steps.world.rank == 0:
            print(f"resolved_mode={mode} {_proof(self, self.engine)}", flush=True)


class _Meter(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Times a step between two moments at which all ranks stand still, and writes it down.

    Timed, as in the native stack: forward and backward of every micro-batch, reduction, clipping, update, clearing.
    """

    def __init__(self, trainer: MeteredTrainer) -> None:
        self._trainer, self._steps, self._watch = trainer, trainer.steps, StepWatch(trainer.steps.world)
        trainer.probe.clock = self._watch.phases

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._trainer.training_begins()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._trainer.losses, self._trainer.norm = [], None
        self._watch.start()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        if self._trainer.norm is None:  # transformers 4 asks for no norm when it does not clip
            self._trainer.accelerator.clip_grad_norm_(self._trainer.model_wrapped.parameters(), float("inf"))

    def on_step_end(self, _arguments: Any, state: Any, control: Any, **_: Any) -> None:
        lap, trainer = self._watch.stop(), self._trainer
        trainer.probe.step_ended()
        assert trainer.norm is not None
        mean = torch.stack(trainer.losses).mean()
        self._steps.finish(state.global_step - 1, mean, trainer.norm, lap, trainer.data_seconds)
        control.should_save = self._steps.checkpoint_due(state.global_step)


class _Batches:
    """The micro-batches from the first step on, one after the other, in the Trainer's terms."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __iter__(self) -> Iterator[dict[str, Any]]:
        steps = self._steps
        for step in range(steps.first, steps.run.steps):
            for micro in range(steps.run.cell.accumulation):
                yield {_BATCH: steps.batches.at(step, micro).to(steps.world.device)}


@contextmanager
def _config_hidden(model: VLA) -> Iterator[None]:
    """Trainer writes into a model's `config`, which it takes for one of transformers'."""
    config = vars(model).pop("config", None)
    try:
        yield
    finally:
        if config is not None:
            model.config = config


def _arguments(cell: Cell, steps: Steps, folder: Path) -> dict[str, Any]:
    """What every backend shares. The optimizer's own arguments are left out: the optimizer is ours."""
    return {
        "output_dir": str(folder),
        "use_cpu": steps.world.device.type == "cpu",
        "ddp_backend": "gloo" if steps.world.device.type == "cpu" else None,
        "max_steps": steps.run.steps,
        "per_device_train_batch_size": cell.micro_batch,
        "gradient_accumulation_steps": cell.accumulation,
        "max_grad_norm": cell.clip,
        "learning_rate": cell.optimizer.lr,
        "bf16": cell.precision == "bf16",
        "ignore_data_skip": True,  # our batches begin at the right step by themselves
        "save_strategy": "no",  # the callback says when
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "remove_unused_columns": False,
    }


def _proof(trainer: MeteredTrainer, engine: BaseEngine) -> str:
    """What shows that the mode is real: types of what was built, and accelerate's own words."""
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    facts = {
        "wrapper": type(trainer.model_wrapped).__name__,
        "parameter_class": engine.parameter_class(),
        "sharded_units": engine.sharded_units(),
        "distributed_type": trainer.accelerator.distributed_type.value,
        "fsdp_version": getattr(plugin, "fsdp_version", None),
        "world_size": trainer.args.world_size,
    }
    return " ".join(f"{name}={value}" for name, value in facts.items())
