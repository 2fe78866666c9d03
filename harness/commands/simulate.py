"""`harness simulate`."""

from __future__ import annotations

import json
import os
import re
import warnings
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from harness.commands.models import chosen_precision
from harness.errors import BadInput
from harness.simulate.prediction import Question, predict
from harness.simulate.records import Prediction, Refusal

_UNITS = {"GB": 10**9, "GiB": 2**30, "TB": 10**12, "TiB": 2**40, "MB": 10**6, "MiB": 2**20}


@dataclass(frozen=True)
class SimulationRequest:
    """As typed; see `Question`."""

    model: str
    size: str
    backends: str
    worlds: str
    precision: str
    micro_batch: int
    accumulation: int
    activation_checkpointing: bool
    device_memory: str | None
    bandwidth: str | None
    compute_seconds: float | None
    formula: bool


def simulate(request: SimulationRequest, as_json: bool) -> None:
    question = _question(request)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # DDP remarks that it cannot time `meta`
    with warnings.catch_warnings():
        # FSDP1 asks fake tensors for their addresses, and both FSDPs remark on the frozen parameters of a unit.
        warnings.simplefilter("ignore")
        answers = list(predict(question))
    if as_json:
        print(json.dumps([_plain(one) for one in answers], indent=1))
        return
    console = Console()
    found = [one for one in answers if isinstance(one, Prediction)]
    console.print(
        f"{question.model}, size {question.size}, {question.precision}, micro-batch {question.micro_batch}, "
        f"accumulation {question.accumulation}",
        highlight=False,
    )
    if found:
        console.print("\nGB that the first rank holds before the update")
        console.print(_memory(found))
        console.print("\nGB per step: payload by kind and in how many calls, and what a ring sends per rank")
        console.print(_communication(found))
    for one in answers:
        if isinstance(one, Refusal):
            console.print(f"{one.backend} on {one.ranks}: {one.reason}", highlight=False, soft_wrap=True)
    if any(one.counted.method == "formula" for one in found):
        console.print("* by formula, not from the backend's own engine: see docs/scale.md", highlight=False)


def _question(request: SimulationRequest) -> Question:
    if request.compute_seconds is not None and request.bandwidth is None:
        raise BadInput("--compute-seconds", None, request.compute_seconds, "a --bandwidth beside it")
    return Question(
        model=request.model,
        size=request.size,
        backends=[name.strip() for name in request.backends.split(",")],
        worlds=[_ranks(text.strip()) for text in request.worlds.split(",")],
        precision=chosen_precision(request.precision),
        micro_batch=request.micro_batch,
        accumulation=request.accumulation,
        activation_checkpointing=request.activation_checkpointing,
        device_bytes=None if request.device_memory is None else _bytes("--device-memory", request.device_memory),
        bandwidth_bytes_per_second=None if request.bandwidth is None else _bytes("--bandwidth", request.bandwidth),
        compute_seconds=request.compute_seconds,
        formula=request.formula,
    )


def _ranks(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise BadInput("--world", None, text, "numbers of ranks, such as 8,64,1024")
    return int(text)


def _bytes(option: str, text: str) -> int:
    """Of a size such as "80GiB". Raises BadInput."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", text)
    if parts is None or parts[2] not in _UNITS or float(parts[1]) <= 0:
        raise BadInput(option, None, text, "a number and its unit, such as 80GiB", _UNITS)
    return int(float(parts[1]) * _UNITS[parts[2]])


def _plain(one: Prediction | Refusal) -> dict[str, object]:
    if isinstance(one, Refusal):
        return one.model_dump()
    return one.model_dump(mode="json") | {"peak_bytes": one.peak_bytes, "wire_bytes": one.wire_bytes}


def _memory(found: list[Prediction]) -> Table:
    table = _new_table("param", "grad", "optim", "padding", "peak", *(["fits"] if found[0].fits is not None else []))
    for one in found:
        shard = one.counted.shard
        held = (shard.parameter_bytes, shard.gradient_bytes, shard.optimizer_bytes, one.padding_bytes, one.peak_bytes)
        fits = [] if one.fits is None else ["yes" if one.fits else "no"]
        table.add_row(*_name(one), *(_gigabytes(count) for count in held), *fits)
    return table


def _communication(found: list[Prediction]) -> Table:
    times = ["comm. s"] if found[0].communication_seconds is not None else []
    times += ["step s"] if found[0].step_seconds is not None else []
    table = _new_table("gather", "scatter", "reduce", "sent", *times)
    for one in found:
        payloads = (_traffic(one, kind) for kind in ("all_gather", "reduce_scatter", "all_reduce"))
        seconds = [] if one.communication_seconds is None else [f"{one.communication_seconds:.3g}"]
        seconds += [] if one.step_seconds is None else ["{:.3g}-{:.3g}".format(*one.step_seconds)]
        table.add_row(*_name(one), *payloads, _gigabytes(one.wire_bytes), *seconds)
    return table


def _new_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)  # all columns fit into 80 characters
    table.add_column("backend")
    for column in ("ranks", *columns):
        table.add_column(column, justify="right")
    return table


def _name(one: Prediction) -> tuple[str, str]:
    return one.backend + ("*" if one.counted.method == "formula" else ""), str(one.ranks)


def _traffic(one: Prediction, kind: str) -> str:
    """Bytes, and how many calls where they are known."""
    found = next((each for each in one.counted.traffic if each.kind == kind), None)
    if found is None:
        return ""
    return _gigabytes(found.payload_bytes) + ("" if found.calls is None else f" in {found.calls}")


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g}"
