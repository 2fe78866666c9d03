"""One rank of one run: `torchrun … -m harness.train.worker SPEC.json`. Speaks to the launcher through files only."""

from __future__ import annotations

import faulthandler
import hashlib
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.processes import die_with_parent, parent_from_environment
from harness.train.journal import (
    EXPORT,
    LOGS,
    Journal,
    checkpoint_folder,
    failure_file,
    phase_of,
    report_file,
    stacks_file,
)

if __name__ == "__main__":
    die_with_parent(parent_from_environment())  # before the slow imports: an orphan must not even get that far

import numpy as np
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.elastic.multiprocessing.errors import record

from harness.backends import build_engine
from harness.backends.base import Trained
from harness.backends.modules import checkpoint_layers, weights_sha256
from harness.data.dataset import Batches, Dataset, open_dataset
from harness.data.state_prompt import with_state_in_prompt
from harness.models import build, build_on_meta, input_shape
from harness.models.base import VLA
from harness.models.flops import count
from harness.models.formats.transfer import load_checkpoint
from harness.plan import RunKind
from harness.policies.card import WEIGHTS_FILE, write_card
from harness.store import folder_bytes, read_record, remove_folder, write_record
from harness.train.activations import activation_bytes
from harness.train.facts import Workload
from harness.train.loop import DivergedError, LoopResult, Steps, train
from harness.train.memory import limit_address_space, peak_resident_bytes
from harness.train.meter import Stopwatch
from harness.train.plant import plant_gradient, planted
from harness.train.records import COMPLETE, Outcome, RankFailure, RankReport, RunSpec
from harness.train.trace import Traced, trace_steps
from harness.train.turns import Baton
from harness.train.world import World, joined

HASHED_BATCHES = 4
"""Micro-batches of each rank that go into `Workload.data_sha256`."""

_PEER_TROUBLE = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "Broken pipe",
    "Timed out waiting",
    "Watchdog caught collective operation timeout",
    "remote process exited or there was a network error",
)
"""What gloo, NCCL and the store say when another rank is gone or late."""

_LOOKS_AT_VALUES = (NotImplementedError, RuntimeError, TypeError)
"""What a model that looks at values raises on `meta`."""

_NO_MEMORY = ("can't allocate memory", "out of memory")
"""What PyTorch's CPU and CUDA allocators say in errors that are not of a class of their own."""


@record
def main() -> None:
    """Runs the spec named on the command line; the rank and its peers come from torchrun's environment."""
    spec = read_record(Path(sys.argv[1]), RunSpec)
    rank, attempt = int(os.environ["RANK"]), Path(spec.folder)
    stacks = stacks_file(attempt, rank)
    stacks.parent.mkdir(parents=True, exist_ok=True)
    with stacks.open("w") as file, explained_failure(attempt, rank):
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
        if spec.run.cell.stack == "external":
            from harness.train.external import run_entry

            run_entry(spec)
            return
        with joined(spec.collective_timeout_seconds) as world:
            if spec.address_space_bytes is not None:
                limit_address_space(spec.address_space_bytes)
            Training(spec, world).run()


@contextmanager
def explained_failure(attempt: Path, rank: int) -> Iterator[None]:
    """Leaves a RankFailure for the launcher when the body raises."""
    try:
        yield
    except (Exception, CheckpointException) as error:  # PyTorch's own is not an `Exception`
        cause, waited = cause_of(error, rank)
        text = str(cause).strip()
        write_record(
            failure_file(attempt, rank),
            RankFailure(
                rank=rank,
                outcome=outcome_of(cause),
                reason=f"{type(cause).__name__}: {text.splitlines()[0] if text else '(no message)'}",
                traceback=traceback.format_exc(),
                waited=waited,
                at=time.time(),
                phase=phase_of(attempt, rank),
                peak_resident_bytes=peak_resident_bytes(),
                peak_allocated_bytes=torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
            ),
        )
        raise


def cause_of(error: BaseException, rank: int) -> tuple[BaseException, bool]:
    """What went wrong, and whether it did so on another rank. All ranks raise what one met at a distributed
    checkpoint: there it is that rank's own exception."""
    if isinstance(error, CheckpointException) and error.failures:
        own = error.failures.get(rank, error.failures[min(error.failures)])
        return own[0], rank not in error.failures
    return error, any(phrase in str(error) for phrase in _PEER_TROUBLE)


def outcome_of(error: BaseException) -> Outcome:
    """DIVERGED and OOM are named for what they are; every other exception is a crash."""
    if isinstance(error, DivergedError):
        return Outcome.DIVERGED
    no_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
    if no_memory or (isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _NO_MEMORY)):
        return Outcome.OOM
    return Outcome.CRASHED


class Training:
    """What one rank does, from the spec to its report."""

    def __init__(self, spec: RunSpec, world: World) -> None:
        self.spec, self.world = spec, world
        self.planned, self.cell = spec.run, spec.run.cell
        self.attempt = Path(spec.folder)
        self.journal = Journal(self.attempt, world.rank)
        self.trained: Trained
        self.save_seconds: float | None = None
        self.load_seconds: float | None = None
        self.checkpoint_bytes: int | None = None
        self.traced = Traced(None, None)
        self.activation_bytes: int | None = None

    def run(self) -> None:
        """Everything in order. The report comes last: without it the rank did not end well."""
        dataset = self.open_dataset()
        batches = Batches(
            dataset,
            self.spec.seed,
            self.world.rank,
            self.world.ranks,
            self.cell.micro_batch,
            self.cell.accumulation,
        )
        model = self.build_model()
        workload = self.describe(model, batches)
        self.activation_bytes = self.count_activations()
        steps = Steps(
            self.planned,
            batches,
            self.world,
            self.journal,
            workload.tokens_per_sample,
            checkpoint=self.save,
            baton=Baton(self.spec.baton) if self.spec.baton else None,
        )
        self.journal.phase(f"building the {self.cell.backend.backend} engine")
        result = self.train_trainer(model, steps) if self.cell.stack == "trainer" else self.train_native(model, steps)
        if self.planned.kind is RunKind.LEARNING:
            self.export(dataset)
        self.report(workload, result)
        self.journal.close()

    def open_dataset(self) -> Dataset:
        self.journal.phase("opening the dataset")
        folder, cache = (Path(path) if path else None for path in (self.spec.data_folder, self.spec.data_cache))
        shape = input_shape(self.cell.model, self.cell.size)
        if self.cell.state_in_prompt:
            shape = with_state_in_prompt(shape)
        return open_dataset(self.cell.data, folder, shape, cache=cache, on_progress=self.journal.phase)

    def build_model(self) -> VLA:
        """Equal weights on every rank and under every backend: a function of the seed, or from a checkpoint."""
        self.journal.phase("building the model")
        random.seed(self.spec.seed)
        np.random.seed(self.spec.seed % 2**32)
        torch.manual_seed(self.spec.seed)
        model = build(self.cell.model, self.cell.size, self.cell.layout)
        if self.cell.init is not None:
            load_checkpoint(model, Path(self.cell.init))
        model.freeze(self.cell.frozen)
        return model

    def describe(self, model: VLA, batches: Batches) -> Workload:
        """What must agree between runs to be compared, taken before any backend touches the model."""
        parameters = list(model.parameters())
        of_all_ranks = "".join(self.world.gather(batches.sha256(HASHED_BATCHES)))
        training_flops, hardware_flops = self.count_flops()
        return Workload(
            parameters=sum(p.numel() for p in parameters),
            trainable_parameters=sum(p.numel() for p in parameters if p.requires_grad),
            initial_weights_sha256=weights_sha256(model),
            data_sha256=hashlib.sha256(of_all_ranks.encode()).hexdigest(),
            hashed_batches=HASHED_BATCHES,
            damaged_episodes=batches.dataset.damaged,
            samples_per_step=self.cell.samples_per_step,
            tokens_per_sample=model.tokens_per_sample(),
            tokens_definition=model.tokens_definition,
            training_flops_per_sample=training_flops,
            hardware_flops_per_sample=hardware_flops,
        )

    def count_flops(self) -> tuple[int, int] | tuple[None, None]:
        """Operations of one sample's forward and backward, without and with recomputation. Draws no random numbers.

        None for a model of somebody's own that looks at values, which tensors on `meta` do not have.
        """
        counted = []
        for recompute in (False, self.cell.activation_checkpointing):
            with torch.random.fork_rng(devices=[]), torch.device("meta"):
                model = build_on_meta(self.cell.model, self.cell.size, self.cell.layout)
                model.freeze(self.cell.frozen)
                if recompute:
                    checkpoint_layers(model)
                try:
                    counted.append(count(model).training)
                except _LOOKS_AT_VALUES:
                    return None, None
        return counted[0], counted[1]

    def count_activations(self) -> int | None:
        """Before any backend has changed torch. None as for `count_flops`."""
        with torch.random.fork_rng(devices=[]):
            model = build_on_meta(self.cell.model, self.cell.size, self.cell.layout)
            with suppress(*_LOOKS_AT_VALUES):
                return activation_bytes(model, self.cell)
        return None

    def train_native(self, model: VLA, steps: Steps) -> LoopResult:
        plant_gradient(model, self.planned.planted, self.world.rank)
        built = build_engine(model, self.cell, self.world.device)
        self.trained = engine = planted(built, self.planned.planted, self.world.device)
        steps.first = self.resume()
        self.journal.phase("training")
        result = train(steps, engine)
        if self.spec.trace:
            self.journal.phase("tracing")
            self.traced = trace_steps(engine, steps, self.attempt)
        return result

    def train_trainer(self, model: VLA, steps: Steps) -> LoopResult:
        from harness.train.hf_trainer import TrainerStack

        self.trained = stack = TrainerStack(model, steps, self.attempt / LOGS)
        steps.first = self.resume()
        self.journal.phase("training")
        result = stack.train()
        self.load_seconds = stack.load_seconds
        return result

    def resume(self) -> int:
        """Takes over an earlier attempt's checkpoint and rows, if there is one; returns the next step."""
        if self.spec.resume_from is None:
            return 0
        checkpoint = Path(self.spec.resume_from)
        self.journal.phase(f"loading {checkpoint.name}")
        watch = Stopwatch()
        self.trained.load(checkpoint)
        self.world.synchronise()
        self.load_seconds = watch.stop().wall_seconds
        return self.journal.carry_over(checkpoint)

    def save(self, step: int) -> None:
        """Writes a checkpoint, and once it is whole removes those before it, unless all are to be kept."""
        folder = checkpoint_folder(self.attempt, step)
        self.journal.phase(f"saving {folder.name}")
        self.journal.sync()
        self.world.synchronise()
        watch = Stopwatch()
        self.trained.save(folder)
        self.save_seconds = watch.stop().wall_seconds
        self.checkpoint_bytes = folder_bytes(folder)
        if self.world.rank == 0 and not self.spec.keep_checkpoints:
            for older in folder.parent.iterdir():
                if older != folder:
                    (older / COMPLETE).unlink(missing_ok=True)
                    remove_folder(older)
        self.journal.phase("training")

    def export(self, dataset: Dataset) -> None:
        self.journal.phase("exporting the weights")
        folder = self.attempt / EXPORT
        self.trained.export(folder / WEIGHTS_FILE)
        if self.world.rank == 0:
            write_card(folder, self.cell.model, self.cell.size, dataset)

    def report(self, workload: Workload, result: LoopResult) -> None:
        write_record(
            report_file(self.attempt, self.world.rank),
            RankReport(
                rank=self.world.rank,
                host=socket.gethostname(),
                workload=workload,
                in_force=self.trained.in_force(),
                shard=self.trained.shard_bytes(),
                peak_resident_bytes=result.peaks.resident_bytes,
                peak_allocated_bytes=result.peaks.allocated_bytes,
                peak_reserved_bytes=result.peaks.reserved_bytes,
                cpu_seconds_per_step=result.cpu_seconds_per_step,
                activation_bytes=self.activation_bytes,
                busy_cpu_mhz=result.busy_cpu_mhz,
                collectives=result.collectives,
                exposed_communication_share=self.traced.exposed_share,
                phase_peaks=self.traced.phase_peaks,
                checkpoint_save_seconds=self.save_seconds,
                checkpoint_load_seconds=self.load_seconds,
                checkpoint_bytes=self.checkpoint_bytes,
            ),
        )


if __name__ == "__main__":
    main()
