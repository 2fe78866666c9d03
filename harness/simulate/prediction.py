"""`harness simulate`: a model under each backend on each number of ranks, from one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.backends.footprint import Precision
from harness.backends.options import VARIANTS, BackendOptions, DeepSpeedOptions, Fsdp2Options
from harness.backends.support import unsupported
from harness.errors import BadInput
from harness.plan import Cell
from harness.simulate.records import Counted, Prediction, Refusal
from harness.suite import Data

REAL_PARAMETERS = 50_000_000
"""Up to so many, DeepSpeed's engine runs for real: 16 bytes of each, and as much again while it is built."""


@dataclass(frozen=True)
class Question:
    """What is to be predicted, and on which machine.

    Attributes:
        bandwidth_bytes_per_second: what a rank can send to the ring; None: no times.
        compute_seconds: a step's forward, backward and update on one device, as measured there.
    """

    model: str
    size: str
    backends: list[str]
    worlds: list[int]
    precision: Precision = "bf16"
    micro_batch: int = 8
    accumulation: int = 1
    activation_checkpointing: bool = False
    device_bytes: int | None = None
    bandwidth_bytes_per_second: float | None = None
    compute_seconds: float | None = None
    formula: bool = False
    """FSDP2 by formula too (`harness.simulate.fsdp2`): seconds instead of minutes."""


def predict(question: Question) -> Iterator[Prediction | Refusal]:
    """One by one, backend by backend.

    Raises:
        BadInput: no such backend, model or size.
        MachineFault: DeepSpeed's own process has failed.
    """
    for name in question.backends:
        if name not in VARIANTS:
            raise BadInput("--backend", None, name, "a backend to simulate", VARIANTS)
    from harness.models import build_on_meta
    from harness.train.activations import activation_bytes

    cells = [
        (name, _cell(question, VARIANTS[name], f"{question.model}-{name}", ranks))
        for name in question.backends
        for ranks in question.worlds
    ]
    engines = _Engines(question, [cell for _, cell in cells])
    activations: int | None = None  # neither a backend's matter nor one of ranks
    for name, cell in cells:
        if reason := unsupported(cell, cuda=False):
            yield Refusal(backend=name, ranks=cell.ranks, reason=reason)
            continue
        if activations is None:
            activations = activation_bytes(build_on_meta(cell.model, cell.size, cell.layout), cell)
        yield _predicted(question, name, cell, engines.counted(cell), activations)


def _cell(question: Question, options: BackendOptions, label: str, ranks: int) -> Cell:
    return Cell(
        label=label,
        model=question.model,
        size=question.size,
        ranks=ranks,
        precision=question.precision,
        micro_batch=question.micro_batch,
        accumulation=question.accumulation,
        activation_checkpointing=question.activation_checkpointing,
        backend=options,
        data=Data(source="synthetic"),
    )


def _predicted(question: Question, name: str, cell: Cell, counted: Counted, activations: int) -> Prediction:
    from harness.simulate.memory import gathered_bytes

    prediction = Prediction(
        model=cell.model,
        size=cell.size,
        backend=name,
        ranks=cell.ranks,
        precision=cell.precision,
        micro_batch=cell.micro_batch,
        accumulation=cell.accumulation,
        counted=counted,
        padding_bytes=_padding_bytes(cell, name, counted),
        activation_bytes=activations,
        gathered_bytes=gathered_bytes(cell),
        fits=None,
        communication_seconds=None,
        step_seconds=None,
    )
    return on_the_machine(question, prediction)


class _Engines:
    """Steps of the real engines where they can run, by formula elsewhere. DeepSpeed's run together, when one is
    asked for: importing it takes longer than a step."""

    def __init__(self, question: Question, cells: list[Cell]) -> None:
        self._question, self._cells = question, cells
        self._apart: dict[str, Counted] | None = None

    def counted(self, cell: Cell) -> Counted:
        from harness.simulate import fsdp2, zero

        if isinstance(cell.backend, Fsdp2Options) and self._question.formula:
            return fsdp2.by_formula(cell)
        if not isinstance(cell.backend, DeepSpeedOptions):
            from harness.simulate.engines import count

            return count(cell)
        formula = zero.by_formula(cell)
        if self._question.formula or not _small(cell):
            return formula
        if self._apart is None:
            self._apart = _counted_apart([each for each in self._cells if isinstance(each.backend, DeepSpeedOptions)])
        counted = self._apart[cell.identity]
        # Stages 1 and 2 keep reduced gradients to themselves until the update, out of sight of the engine's figures.
        gradients = counted.shard.gradient_bytes or formula.shard.gradient_bytes
        return counted.model_copy(update={"shard": counted.shard.model_copy(update={"gradient_bytes": gradients})})


def _counted_apart(cells: list[Cell]) -> dict[str, Counted]:
    from harness.simulate.worker import count_apart

    runnable = [cell for cell in cells if not unsupported(cell, cuda=False)]
    return {cell.identity: counted for cell, counted in zip(runnable, count_apart(runnable), strict=True)}


def _small(cell: Cell) -> bool:
    from harness.simulate.shapes import elements, shapes_of

    return elements(shapes_of(cell).all) <= REAL_PARAMETERS


def _padding_bytes(cell: Cell, name: str, counted: Counted) -> int:
    """Beyond what one of so many ranks would hold if parameters could be cut anywhere."""
    from harness.simulate.shapes import elements, shapes_of

    if name == "ddp" or (isinstance(cell.backend, DeepSpeedOptions) and cell.backend.zero_stage != 3):
        return 0
    width = 2 if isinstance(cell.backend, DeepSpeedOptions) and cell.precision == "bf16" else 4
    return counted.shard.parameter_bytes - width * elements(shapes_of(cell).all) // cell.ranks


def on_the_machine(question: Question, prediction: Prediction) -> Prediction:
    """With what the question's device and bandwidth make of it."""
    fits = None if question.device_bytes is None else prediction.peak_bytes <= question.device_bytes
    if question.bandwidth_bytes_per_second is None:
        return prediction.model_copy(update={"fits": fits})
    communication = prediction.wire_bytes / question.bandwidth_bytes_per_second
    compute = question.compute_seconds
    step = None if compute is None else (max(compute, communication), compute + communication)
    return prediction.model_copy(update={"fits": fits, "communication_seconds": communication, "step_seconds": step})
