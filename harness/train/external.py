"""Somebody's own training script under our torchrun, measured without a change in it.

The script is run as `__main__` with `--train-backend <backend>` added to its arguments. Whatever Trainer it builds gets
a callback that times its steps; the mode it says it resolved to is read from its log and held against what it built.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import runpy
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from harness.backends import backend_module
from harness.backends.accelerate_cpu import fsdp_on_cpu
from harness.backends.engine import BaseEngine, Parts
from harness.backends.modules import weights_sha256
from harness.backends.optimizer import foreign_parameters
from harness.backends.probe import Probe
from harness.backends.trainer import confirmed_mode, keep_norms
from harness.errors import BadInput, MachineFault
from harness.plan import PlannedRun
from harness.store import write_record
from harness.train.facts import Workload
from harness.train.host import busy_mhz
from harness.train.journal import Journal, report_file
from harness.train.loop import LossGuard
from harness.train.memory import read_peaks, reset_peaks
from harness.train.meter import Stopwatch
from harness.train.records import RankReport, RunSpec, StepRow
from harness.train.step_watch import StepWatch
from harness.train.world import World

BACKEND_OPTION = "--train-backend"
_MODE = re.compile(r"resolved_mode=(\w+)")
_TOKENS = "one per sample: what an external script feeds its model is not known"


def run_entry(spec: RunSpec) -> None:
    """Runs the cell's script on this rank, writes its steps down as they are made, and reports.

    Raises:
        BadInput: the script is not there.
        MachineFault: it trained without a Trainer, or with another backend than it was asked for.
    """
    cell = spec.run.cell
    assert cell.entry is not None
    script, *arguments = cell.entry
    if not Path(script).is_file():
        raise BadInput(cell.label, "entry", script, f"a script, relative to {Path.cwd()}")
    rank, attempt = int(os.environ["RANK"]), Path(spec.folder)
    journal = Journal(attempt, rank)
    journal.phase(f"running {script}")
    meters: list[TrainerMeter] = []
    if cell.backend.backend == "deepspeed":
        backend_module(cell).import_deepspeed("cuda" if torch.cuda.is_available() else "cpu")
    with _every_trainer(lambda trainer: meters.append(TrainerMeter(trainer, spec.run, journal))):
        _run_as_main(script, [*arguments, BACKEND_OPTION, cell.backend.backend])
    trained = [meter for meter in meters if meter.steps]
    if len(trained) != 1:
        raise MachineFault(f"{script} trained with {len(trained)} Trainers; exactly one can be measured")
    write_record(report_file(attempt, rank), _report(rank, trained[0]))
    journal.close()


@contextmanager
def _every_trainer(found: Callable[[Any], None]) -> Iterator[None]:
    """While the script runs: `found` is called with each `transformers.Trainer`, or heir of it, once it is built."""
    from transformers import Trainer

    built = Trainer.__init__

    def building(self: Any, *arguments: Any, **named: Any) -> None:
        with nullcontext() if torch.cuda.is_available() else fsdp_on_cpu():
            built(self, *arguments, **named)
        found(self)

    Trainer.__init__ = building
    try:
        yield
    finally:
        Trainer.__init__ = built


def _run_as_main(script: str, arguments: list[str]) -> None:
    """As `python script arguments` would, its own folder first on the path; a successful exit is no exception."""
    before = sys.argv, sys.path
    sys.argv, sys.path = [script, *arguments], [str(Path(script).resolve().parent), *sys.path]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    finally:
        sys.argv, sys.path = before


class TrainerMeter:
    """Writes down the steps of a Trainer that is not ours: a callback for the clock, and a few wrapped calls
    for the loss and the gradient norm.

    Attributes:
        steps: how many were made.
        engine: reads back what was built; there from the beginning of training.
    """

    engine: BaseEngine

    def __init__(self, trainer: Any, run: PlannedRun, journal: Journal) -> None:
        self._trainer, self._run, self._journal = trainer, run, journal
        self._model, self._probe = trainer.model, Probe(trainer.model)
        self.world = World.present(trainer.args.device, float(trainer.args.ddp_timeout))
        self.workload = self._describe()
        self.steps = 0
        self._losses: list[Tensor] = []
        self._norm: float | None = None
        self._watch, self._between = StepWatch(self.world), Stopwatch()
        self._probe.clock = self._watch.phases
        self._guard = LossGuard()
        self._cpu_seconds: list[float] = []
        trainer.compute_loss = self._noting_forward(trainer.compute_loss)
        trainer.training_step = self._keeping_loss(trainer.training_step)
        keep_norms(trainer.accelerator, self._keep_norm)
        trainer.add_callback(_callback(self))

    @property
    def cpu_seconds_per_step(self) -> float | None:
        return median(self._cpu_seconds) if self._cpu_seconds else None

    def training_begins(self) -> None:
        """
        Raises:
            MachineFault: the Trainer did not build the backend that was asked for, or the script's optimizer was built
                before the model was sharded.
        """
        self._journal.phase("training")
        trainer = self._trainer
        cell = self._run.cell.model_copy(update={"clip": float(trainer.args.max_grad_norm or 0)})
        mode = confirmed_mode(trainer, cell.backend.backend)
        optimizer = trainer.optimizer
        while not type(optimizer).__module__.startswith("torch."):
            optimizer = optimizer.optimizer  # accelerate's and DeepSpeed's wrappers
        sharded = cell.backend.backend in ("fsdp", "fsdp2")
        model = trainer.model_wrapped if sharded else self._model
        trained = sum(parameter.requires_grad for parameter in model.parameters())
        if sharded and len(foreign_parameters(model, optimizer)) == trained:
            raise MachineFault("the optimizer holds none of the sharded parameters: it was built before the sharding")
        parts = Parts(model, trainer.model_wrapped, optimizer, self._probe, mode)
        self.engine = backend_module(cell).ENGINE(parts, cell, self.world.device)
        self._between.start()

    def step_begins(self) -> None:
        if self.steps == self._run.warmup_steps:
            reset_peaks(self.world.device)
        self._losses, self._norm = [], None
        self._rate = float(self._trainer.optimizer.param_groups[0]["lr"])
        self._between_seconds = self._between.stop().wall_seconds
        self._watch.start()

    def step_ends(self, control: Any) -> None:
        """Raises DivergedError. Stops the training when the run's steps are made."""
        lap = self._watch.stop()
        self._probe.step_ended()
        loss, norm = self.world.mean(torch.stack(self._losses).sum()), self._norm
        samples = self.workload.samples_per_step
        self._journal.add(
            StepRow(
                step=self.steps,
                step_seconds=lap.wall_seconds,
                data_seconds=self._between_seconds,
                loss=loss if math.isfinite(loss) else None,
                gradient_norm=norm if norm is not None and math.isfinite(norm) else None,
                learning_rate=self._rate,
                samples=samples,
                tokens=samples,
                forward_seconds=lap.phases.forward,
                backward_seconds=lap.phases.backward,
                optimizer_seconds=lap.phases.optimizer,
                joules=lap.joules,
                built=lap.compiled or self.steps == 0,
            )
        )
        self._guard.check(self.steps, loss)
        if self.steps >= self._run.warmup_steps:
            self._cpu_seconds.append(lap.cpu_seconds)
        self.steps += 1
        control.should_training_stop |= self.steps >= self._run.steps
        self._between.start()

    def _describe(self) -> Workload:
        arguments, parameters = self._trainer.args, list(self._model.parameters())
        return Workload(
            parameters=sum(p.numel() for p in parameters),
            trainable_parameters=sum(p.numel() for p in parameters if p.requires_grad),
            initial_weights_sha256=weights_sha256(self._model),
            data_sha256=hashlib.sha256().hexdigest(),
            hashed_batches=0,
            samples_per_step=arguments.train_batch_size * arguments.gradient_accumulation_steps * self.world.ranks,
            tokens_per_sample=1,
            tokens_definition=_TOKENS,
        )

    def _keeping_loss(self, step: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def training_step(*arguments: Any, **named: Any) -> Tensor:
            loss = step(*arguments, **named)
            self._losses.append(loss.detach().float())  # a micro-batch's share of the step's mean
            self._probe.backward_ended()
            return loss

        return training_step

    def _noting_forward(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        def compute_loss(*arguments: Any, **named: Any) -> Any:
            loss = compute(*arguments, **named)
            self._probe.forward_ended(micro_batch=self._trainer.args.train_batch_size)
            return loss

        return compute_loss

    def _keep_norm(self, norm: float) -> None:
        self._norm = norm


def _callback(meter: TrainerMeter) -> Any:
    from transformers import TrainerCallback

    class Meter(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            meter.training_begins()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            meter.step_begins()

        def on_step_end(self, _arguments: Any, _state: Any, control: Any, **_: Any) -> None:
            meter.step_ends(control)

    return Meter()


def _report(rank: int, meter: TrainerMeter) -> RankReport:
    """Raises MachineFault when the mode the script's log names is not what it built."""
    said, force, peaks = mode_said(), meter.engine.in_force(), read_peaks(meter.world.device)
    if said is not None and said != force.resolved_mode:
        raise MachineFault(f"the script's log says resolved_mode={said}, but it built {force.resolved_mode}")
    return RankReport(
        rank=rank,
        host=socket.gethostname(),
        workload=meter.workload,
        in_force=force,
        shard=meter.engine.shard_bytes(),
        peak_resident_bytes=peaks.resident_bytes,
        peak_allocated_bytes=peaks.allocated_bytes,
        peak_reserved_bytes=peaks.reserved_bytes,
        cpu_seconds_per_step=meter.cpu_seconds_per_step,
        busy_cpu_mhz=busy_mhz(),
        checkpoint_save_seconds=None,
        checkpoint_load_seconds=None,
        checkpoint_bytes=None,
    )


def mode_said() -> str | None:
    """The last `resolved_mode=` in what this rank has printed, as torchrun keeps it; None when it said none."""
    sys.stdout.flush()
    sys.stderr.flush()
    folder = Path(os.environ["TORCHELASTIC_ERROR_FILE"]).parent
    text = "".join(file.read_text(errors="replace") for file in sorted(folder.glob("std*.log")))
    found = _MODE.findall(text)
    return found[-1] if found else None
