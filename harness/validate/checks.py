"""Is what a run left on disk what it should be? Each check is a function of records and files."""

from __future__ import annotations

from pathlib import Path

from harness.backends.trainer import MODES
from harness.compare.sharding import judge_sharding
from harness.compare.verdict import Verdict
from harness.plan import Cell
from harness.policies.card import WEIGHTS_FILE
from harness.store import folder_bytes
from harness.train.facts import InForce
from harness.train.journal import CHECKPOINTS, EXPORT, checkpoint_folder
from harness.train.records import COMPLETE, Outcome, RunRecord, StepRow
from harness.validate.records import Answer

LOSS_TOLERANCE = {"fp32": 1e-5, "bf16": 0.05}
"""By precision: largest difference of losses. In bf16 backends round at different places, by design."""
NORM_TOLERANCE = {"fp32": 1e-4, "bf16": 0.1}
"""Likewise of gradient norms, relative."""
ACTION_TOLERANCE = {"fp32": 5e-3, "bf16": 0.05}
"""Likewise of the actions that two exports sample from the same noise. Denoising amplifies last digits."""

_FILES = {
    "native": {
        "ddp": ("state/.metadata", "state/__*.distcp"),
        "fsdp": ("state/.metadata", "state/__*.distcp"),
        "fsdp2": ("state/.metadata", "state/__*.distcp"),
        "deepspeed": ("state/*model_states.pt", "state/*optim_states.pt"),
    },
    "trainer": {
        "ddp": ("checkpoint-*/model.safetensors", "checkpoint-*/optimizer.pt"),
        "fsdp": ("checkpoint-*/pytorch_model_fsdp*", "checkpoint-*/optimizer*"),
        "fsdp2": ("checkpoint-*/pytorch_model_fsdp*", "checkpoint-*/optimizer*"),
        "deepspeed": ("checkpoint-*/global_step*/*model_states.pt", "checkpoint-*/global_step*/*optim_states.pt"),
    },
}
"""Stack → backend → what its checkpoint must hold: PyTorch's distributed checkpoint, DeepSpeed's own, accelerate's."""


def passed(detail: str) -> Answer:
    return Answer(outcome="ok", detail=detail)


def failed(detail: str) -> Answer:
    return Answer(outcome="FAILED", detail=detail)


def not_reached(detail: str) -> Answer:
    return Answer(outcome="not reached", detail=detail)


def training(record: RunRecord) -> Answer:
    """It ended well, as the backend that was asked for, on so many ranks, each with its share of the parameters."""
    if record.outcome is not Outcome.OK:
        return failed(f"{record.outcome}: {_reason(record)}")
    assert record.in_force is not None
    fault = _impostor(record.run.cell, record.in_force)
    if fault is not None:
        return failed(fault)
    sharding = judge_sharding(record.run.cell.label, [record])
    if sharding is not None and sharding.verdict is not Verdict.PASS:
        return failed(sharding.reason)
    return passed(_built(record.in_force) + (f", {sharding.reason}" if sharding else ""))


def _impostor(cell: Cell, force: InForce) -> str | None:
    """What was built instead of what was asked for."""
    backend = cell.backend.backend
    modes = MODES[backend] if cell.stack == "trainer" else (cell.stack,)
    expected = {
        "backend": (force.backend, backend),
        "parameter class": (force.parameter_class, "DTensor" if backend == "fsdp2" else "Parameter"),
        "ZeRO stage": (force.zero_stage, getattr(cell.backend, "zero_stage", None)),
        "ranks": (force.world_size, cell.ranks),
    }
    if force.resolved_mode not in modes:
        return f"resolved_mode is {force.resolved_mode}, not {' or '.join(modes)}"
    wrong = (f"{what} is {found}, not {wanted}" for what, (found, wanted) in expected.items() if found != wanted)
    return next(wrong, None)


def _built(force: InForce) -> str:
    units = f", {force.sharded_units} units" if force.sharded_units else ""
    return f"{force.resolved_mode}: {force.wrapper}, {force.parameter_class}{units}"


def parity(record: RunRecord, rows: list[StepRow], reference: RunRecord, of_reference: list[StepRow]) -> Answer:
    """The same losses and gradient norms as under the reference, from the same weights and the same data."""
    if record.outcome is not Outcome.OK:
        return not_reached("it did not train")
    if reference.outcome is not Outcome.OK:
        return not_reached(f"{reference.run.cell.label}, which it is held against, did not train: {_reason(reference)}")
    if record.run == reference.run:
        return passed("this is what the others are held against")
    precision = record.run.cell.precision
    losses, norms = loss_gap(rows, of_reference), _norm_gap(rows, of_reference)
    if record.workload != reference.workload:
        return failed("other initial weights or data than under DDP")
    if losses > LOSS_TOLERANCE[precision] or norms > NORM_TOLERANCE[precision]:
        allowed = f"allowed are {LOSS_TOLERANCE[precision]:g} and {NORM_TOLERANCE[precision]:g}"
        return failed(f"losses differ from DDP's by up to {losses:.1e}, gradient norms by {norms:.1e}; {allowed}")
    return passed(f"losses within {losses:.1e}, gradient norms within {norms:.1e} of DDP's")


def _reason(record: RunRecord) -> str:
    return record.failure.reason if record.failure else str(record.outcome)


def loss_gap(rows: list[StepRow], others: list[StepRow]) -> float:
    """Largest difference of the losses of like steps; infinite where one has none. Both have the same steps."""
    pairs = [(row.loss, other.loss) for row, other in zip(rows, others, strict=True)]
    return max(abs(a - b) if a is not None and b is not None else float("inf") for a, b in pairs)


def _norm_gap(rows: list[StepRow], others: list[StepRow]) -> float:
    pairs = [(row.gradient_norm, other.gradient_norm) for row, other in zip(rows, others, strict=True)]
    return max(abs(a - b) / max(abs(b), 1e-12) if a is not None and b is not None else float("inf") for a, b in pairs)


def checkpoint(attempt: Path, cell: Cell, step: int) -> Answer:
    """It is complete, and holds the files that the backend is known to write."""
    folder = checkpoint_folder(attempt, step)
    if not (folder / COMPLETE).exists():
        return failed(f"{folder.relative_to(attempt / CHECKPOINTS)} is not there or was cut off: no {COMPLETE}")
    patterns = _FILES[cell.stack][cell.backend.backend]
    missing = [pattern for pattern in patterns if not list(folder.glob(pattern))]
    if missing:
        there = ", ".join(sorted(path.name for path in folder.iterdir()))
        return failed(f"no {missing[0]} in the checkpoint, which holds {there}")
    names = ", ".join(_found(folder, pattern) for pattern in patterns)
    return passed(f"{names}; {folder_bytes(folder) / 1e6:.3g} MB")


def _found(folder: Path, pattern: str) -> str:
    """The first file of a pattern, and how many more there are."""
    first, *more = sorted(path.name for path in folder.glob(pattern))
    return first + (f" and {len(more)} more" if more else "")


def resume(
    resumed: RunRecord, rows: list[StepRow], whole: list[StepRow], exports: tuple[Path, Path], step: int
) -> Answer:
    """Fresh processes went on from the checkpoint as if nothing had happened.

    On a CPU in fp32 to the last bit, and the two runs end with the same file; elsewhere kernels may add up in another
    order, and the losses must agree as closely as those of two backends.

    Args:
        exports: the attempts' folders, the resumed one first.
    """
    if resumed.outcome is not Outcome.OK:
        return failed(f"{resumed.outcome}: {_reason(resumed)}")
    if [row.resumed for row in rows] != [True] * step + [False] * (len(whole) - step):
        return failed(f"it did not go on from step {step}")
    cell = resumed.run.cell
    exact = not resumed.fingerprint.gpus and cell.precision == "fp32"
    gap = loss_gap(rows[step:], whole[step:])
    if gap > (0.0 if exact else LOSS_TOLERANCE[cell.precision]):
        return failed(f"losses after the resume differ by up to {gap:.1e} from the uninterrupted run's")
    first, second = (weights(folder).read_bytes() for folder in exports)
    if exact and first != second:
        return failed("the same losses, but other weights at the end than the uninterrupted run")
    after = len(whole) - step
    return passed(f"{after} steps, " + ("to the last bit, and the same export" if exact else f"within {gap:.1e}"))


def weights(attempt: Path) -> Path:
    return attempt / EXPORT / WEIGHTS_FILE


def export(attempt: Path, reference: Path | None, precision: str) -> Answer:
    """The exported policy loads as the evaluator loads it, acts, and acts as the one that DDP trained.

    Args:
        reference: the attempt's folder of the reference run; None when it has no export.
    """
    from harness.validate.acting import actions_of

    if not weights(attempt).is_file():
        return failed("no weights were exported")
    try:
        acted = actions_of(attempt / EXPORT)
    except Exception as error:  # a user's own model may raise anything
        return failed(f"the export cannot act: {type(error).__name__}: {error}")
    megabytes = f"{weights(attempt).stat().st_size / 1e6:.3g} MB"
    if reference is None or reference == attempt:
        return passed(f"reloads and acts; {megabytes}")
    if not weights(reference).is_file():
        return passed(f"reloads and acts, but DDP's export is not there to compare with; {megabytes}")
    apart = float(abs(acted - actions_of(reference / EXPORT)).max())
    if apart > ACTION_TOLERANCE[precision]:
        return failed(f"reloads, but its actions differ by up to {apart:.1e} from those of DDP's export")
    return passed(f"reloads; actions within {apart:.1e} of DDP's export; {megabytes}")
