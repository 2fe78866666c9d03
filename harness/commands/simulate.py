"""`harness simulate`."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from harness.commands.models import chosen_precision
from harness.errors import BadInput
from harness.simulate.prediction import Question, predict
from harness.simulate.records import Prediction

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


def simulate(request: SimulationRequest, as_json: bool) -> None:
    question = _question(request)
    with warnings.catch_warnings():
        # FSDP1 asks fake tensors for their addresses, and both FSDPs remark on the frozen parameters of a unit.
        warnings.simplefilter("ignore")
        found = list(predict(question))
    if as_json:
        print(json.dumps([_plain(one) for one in found], indent=1))
        return
    console = Console()
    console.print(
        f"{question.model}, size {question.size}, {question.precision}, micro-batch {question.micro_batch}, "
        f"accumulation {question.accumulation}: GB of the first rank before the update, GB of collectives per step",
        highlight=False,
    )
    console.print(_table(found))
    if any(one.counted.method == "formula" for one in found):
        console.print("* by formula, not from DeepSpeed's engine: see docs/scale.md", highlight=False)


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


def _plain(one: Prediction) -> dict[str, object]:
    return one.model_dump(mode="json") | {"peak_bytes": one.peak_bytes, "wire_bytes": one.wire_bytes}


def _table(found: list[Prediction]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("backend")
    columns = ["ranks", "param", "grad", "optim", "padding", "peak"]
    columns += ["fits"] if found[0].fits is not None else []
    columns += ["gather", "scatter", "reduce", "sent"]
    timed = found[0].communication_seconds is not None
    columns += ["comm s"] if timed else []
    columns += ["step s"] if found[0].step_seconds is not None else []
    for column in columns:
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(one.backend + ("*" if one.counted.method == "formula" else ""), *_cells(one))
    return table


def _cells(one: Prediction) -> list[str]:
    shard = one.counted.shard
    cells = [str(one.ranks)]
    held = (shard.parameter_bytes, shard.gradient_bytes, shard.optimizer_bytes, one.padding_bytes, one.peak_bytes)
    cells += [_gigabytes(count) for count in held]
    if one.fits is not None:
        cells.append("yes" if one.fits else "no")
    cells += [_traffic(one, kind) for kind in ("all_gather", "reduce_scatter", "all_reduce")]
    cells.append(_gigabytes(one.wire_bytes))
    if one.communication_seconds is not None:
        cells.append(f"{one.communication_seconds:.3g}")
    if one.step_seconds is not None:
        cells.append("{:.3g}-{:.3g}".format(*one.step_seconds))
    return cells


def _traffic(one: Prediction, kind: str) -> str:
    """Bytes, and how many calls where they are known."""
    found = next((each for each in one.counted.traffic if each.kind == kind), None)
    if found is None:
        return ""
    return _gigabytes(found.payload_bytes) + ("" if found.calls is None else f" in {found.calls}")


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g}"
