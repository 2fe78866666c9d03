"""What a backend cannot do, known before anything is started. No torch here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from harness.backends.options import DeepSpeedOptions, Fsdp2Options
from harness.models import MODELS, RAW_LAYOUT

if TYPE_CHECKING:
    from harness.plan import Cell

OLDEST_TORCH = (2, 6)
"""The first with `torch.distributed.fsdp.fully_shard`, and with the norm functions clipping is made of."""
FSDP2_ON_CPU = (2, 7)
"""The first whose `torch.cpu.Stream` records events, which `fully_shard` asks of every device (`torch/cpu/__init__.py`
of 2.6 and 2.7)."""


def unsupported(cell: Cell, cuda: bool) -> str | None:
    """The reason why this cell cannot run, or None. All else runs on gloo and CPU as on nccl and GPUs.

    Args:
        cuda: whether each rank will have a GPU.
    """
    if (found := _release("torch")) and found < OLDEST_TORCH:
        return f"torch {version('torch')} is older than {'.'.join(map(str, OLDEST_TORCH))}"
    if (cell.stack == "external") != (cell.entry is not None):
        return "a cell of stack external names its script as entry = [script, arguments …], and no other cell does"
    limits = [
        (
            cell.layout == "raw" and cell.model in MODELS and cell.model not in RAW_LAYOUT,
            f"{cell.model} calls its layers as modules in Dexbotic too: there is no other layout to reproduce",
        ),
        (
            cell.backend.backend == "fsdp" and cell.ranks == 1,
            "FSDP1 does not shard over one rank: it switches to NO_SHARD by itself",
        ),
    ]
    if limit := next((reason for applies, reason in limits if applies), None):
        return limit
    if isinstance(cell.backend, Fsdp2Options):
        reason = _fsdp2(cell.backend, cell.ranks, cuda)
    elif isinstance(cell.backend, DeepSpeedOptions):
        reason = _deepspeed(cell.backend)
    else:
        reason = None
    if cell.stack == "trainer":
        return reason or _trainer(cell, cuda)
    if cell.backend.backend == "ddp" and cell.precision == "bf16" and cell.activation_checkpointing:
        return "DDP in bf16 casts parameters for the time of the forward; recomputing in the backward would miss that"
    return reason


def _fsdp2(options: Fsdp2Options, ranks: int, cuda: bool) -> str | None:
    if not cuda and (found := _release("torch")) and found < FSDP2_ON_CPU:
        return f"torch {version('torch')} runs FSDP2 on GPUs only; on a CPU {'.'.join(map(str, FSDP2_ON_CPU))} does"
    if options.tensor_parallel > 1:
        return (
            "a mesh with a tensor-parallel axis needs a parallel plan for every layer; the models have none, since "
            "their joint attention reads the weights of two towers at once"
        )
    if ranks % options.replicas:
        return f"{ranks} ranks do not form {options.replicas} groups of equal size"
    inner = options.reshard_after_forward
    if inner is not None and not isinstance(inner, bool) and (ranks // options.replicas) % inner:
        return f"reshard_after_forward = {inner} must divide the {ranks // options.replicas} ranks of a shard group"
    return None


def _deepspeed(options: DeepSpeedOptions) -> str | None:
    if options.offload_parameters and options.zero_stage != 3:
        return f"ZeRO-{options.zero_stage} keeps whole parameters on every rank; only ZeRO-3 offloads them"
    return None


def _trainer(cell: Cell, cuda: bool) -> str | None:
    """What TrainingArguments and accelerate (1.15) have no words for, or cannot do without a GPU."""
    options = cell.backend
    limits: list[tuple[bool, str]] = []
    if options.backend in ("fsdp", "fsdp2"):
        alone = options.wrap == "root" and cell.activation_checkpointing
        limits.append((alone, "accelerate recomputes the modules that FSDP wraps, and under the root there are none"))
    if options.backend == "fsdp":
        filled = cell.profile.cpu_ram_efficient_loading is True
        limits.append((filled and not cuda, "accelerate fills FSDP1's ranks from rank 0 on an accelerator only"))
    if isinstance(options, Fsdp2Options):
        counted = options.reshard_after_forward is not None and not isinstance(options.reshard_after_forward, bool)
        limits += [
            (options.cpu_offload and not cuda, "accelerate offloads into pinned memory, which needs an accelerator"),
            (counted, "the Trainer's reshard_after_forward is true or false"),
            (options.replicas > 1, "the Trainer stack shards over one mesh dimension"),
            (options.meta_init, "the Trainer's own way is profile.cpu_ram_efficient_loading"),
        ]
    return next((reason for applies, reason in limits if applies), None)


def _release(distribution: str) -> tuple[int, int] | None:
    """Major and minor version; None when it is not installed."""
    try:
        major, minor = version(distribution).split(".")[:2]
    except PackageNotFoundError:
        return None
    return int(major), int(minor)
