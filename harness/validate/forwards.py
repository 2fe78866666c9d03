"""Rules on the forward: what it touches once layers are sharded, in which dtypes and on which devices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.backends.modules import dtype_name
from harness.validate.findings import Finding, place
from harness.validate.subject import Subject
from harness.validate.tracing import Mix, Read

_TAKE_DTYPE = "take the dtype of an input, or of a module of the root"
_MOVE_INSIDE = "move that code into the layer's forward; else leave the class out of the profile (root alone)"


def runs(subject: Subject) -> list[Finding]:
    """The model makes a step at all, alone and in float32."""
    failure = subject.step.failure
    if failure is None:
        return []
    return [
        Finding(
            rule="runs",
            where=place(failure.module),
            severity="error",
            why=f"forward and backward without any backend end in {failure.error}",
            change="make one step run; most other rules need it",
            line=failure.line,
        )
    ]


def draws_elsewhere(subject: Subject) -> list[Finding]:
    """A forward that draws from torch's global generator: dropout, or noise without `generator=batch.generator`.

    Backends and resumed runs leave that generator at different places, so no two losses of one step would agree.
    """
    if subject.step.failure or subject.strays is None:
        return []
    return [
        Finding(
            rule="draws-elsewhere",
            where=place(subject.strays),
            severity="error",
            why="its output depends on torch's global generator, which stands elsewhere under each backend",
            change="draw noise and times from batch.generator, and build dropout with probability 0",
        )
    ]


def direct_forward(subject: Subject) -> list[Finding]:
    """`layer.forward(x)` of a unit while it is sharded.

    FSDP gathers in hooks of the call, so `model(x)`, not `model.forward(x)` ("got mixed torch.Tensor and DTensor").
    Inside `unshard()`, and in a method registered with `register_fsdp_forward_method`, the parameters are whole.
    """
    direct = [read for read in subject.sharded.reads if read.direct is not None]
    return [
        Finding(
            rule="direct-forward",
            where=place(reads[0].direct or ""),
            severity="error",
            why=f"its forward is run without a call, so the unit {_units(reads)} is not gathered for it",
            change="call the module; or gather it with unshard(), or register_fsdp_forward_method",
            line=line,
        )
        for line, reads in _by_line(direct).items()
    ]


def direct_forward_inside(subject: Subject) -> list[Finding]:
    """`.forward` of a module that owns parameters, where FSDP has gathered them but ZeRO-3 has not.

    DeepSpeed gathers in hooks of each module that owns parameters (`parameter_offload.py`).
    """
    reported = {read.direct for read in subject.sharded.reads}
    lines: dict[str | None, list[str]] = {}
    for call in subject.sharded.direct_calls:
        owns = any(True for _ in subject.model.get_submodule(call.module).parameters(recurse=False))
        if owns and call.module not in reported and call.module not in subject.units:
            lines.setdefault(call.line, []).append(call.module)
    return [
        Finding(
            rule="direct-forward",
            where=place(modules[0]),
            severity="warning",
            why=f"its forward{_others(modules)} is run without a call: under ZeRO-3 its weights are empty",
            change="call the module",
            line=line,
        )
        for line, modules in lines.items()
    ]


def reads_inside_layers(subject: Subject) -> list[Finding]:
    """A forward that uses parameters of a unit from outside of it.

    `layer.self_attn.q_proj(x)` from the root's forward meets a shard ("got mixed torch.Tensor and DTensor"); Dexbotic,
    openpi and lerobot drive pi0's layers so, which is why theirs are wrapped at the root alone. Of a dtype alone, the
    shard's is float32 where the forward computes in bfloat16 (Dexbotic's dm0: `q_proj.weight.dtype`).
    """
    found = []
    for of_dtype in (False, True):
        outside = [read for read in subject.sharded.reads if read.direct is None and read.of_dtype is of_dtype]
        for line, reads in _by_line(outside).items():
            use = "the dtype of its" if of_dtype else "its"
            consequence = "and a shard's is not what the forward computes in" if of_dtype else "which is a shard then"
            change = _TAKE_DTYPE if of_dtype else _MOVE_INSIDE
            found.append(
                Finding(
                    rule="reads-inside-layers",
                    where=place(reads[0].module),
                    severity="warning" if of_dtype else "error",
                    why=f"{use} {_own_name(reads[0])} is used outside of the unit {_units(reads)}, {consequence}",
                    change=change,
                    line=line,
                )
            )
    return found


def mixed_dtypes(subject: Subject) -> list[Finding]:
    """Tensors of two dtypes in one product when the parameters are bfloat16.

    Inputs come in float32 and are the model's to cast: before a projector, a vision tower, an action head and every
    manual `F.linear`. Torch refuses the product ("mat1 and mat2 must have the same dtype").
    """
    return [
        _mix("mixed-dtypes", mix, "cast the input to the weight's dtype before it: `x.to(self.weight.dtype)`")
        for mix in _first_of_each(subject.sharded.mixes)
    ]


def mixed_devices(subject: Subject) -> list[Finding]:
    """Tensors of two devices in one operation: made on the host within the forward, where inputs and weights are not.

    Seen with model and batch on `meta`, which stands for any accelerator.
    """
    change = "make the tensor with device=x.device, or register it as a buffer"
    return [_mix("mixed-devices", mix, change) for mix in _first_of_each(subject.on_meta.mixes)]


def loss_in_float32(subject: Subject) -> list[Finding]:
    """Under bfloat16 parameters the loss is a float32 scalar.

    In bfloat16 a loss of 6 is known to 0.03, and no two backends can be told apart by it.
    """
    dtype = subject.sharded.loss_dtype
    if dtype is None or dtype is torch.float32:
        return []
    return [
        Finding(
            rule="loss-in-float32",
            where=place(""),
            severity="error",
            why=f"with bfloat16 parameters the loss is {dtype_name(dtype)}, too coarse to compare",
            change="cast the prediction with .float() before the loss, and keep targets in float32",
        )
    ]


def shards(subject: Subject) -> list[Finding]:
    """A sharded step in bfloat16 that ends in an exception no other rule has foreseen."""
    failure = subject.sharded.failure
    if failure is None or subject.step.failure is not None:
        return []
    return [
        Finding(
            rule="shards",
            where=place(failure.module),
            severity="error",
            why=f"a step in bfloat16 with the profile's layers sharded ends in {failure.error}",
            change="make this step run, or leave the class out of the profile",
            line=failure.line,
        )
    ]


def _mix(rule: str, mix: Mix, change: str) -> Finding:
    return Finding(
        rule=rule,
        where=place(mix.module),
        severity="error",
        why=f"{mix.function} gets {' and '.join(mix.kinds)}",
        change=change,
        line=mix.line,
    )


def _first_of_each(mixes: Sequence[Mix]) -> list[Mix]:
    first: dict[str | None, Mix] = {}
    for mix in mixes:
        first.setdefault(mix.line or mix.module, mix)
    return list(first.values())


def _by_line(reads: list[Read]) -> dict[str | None, list[Read]]:
    lines: dict[str | None, list[Read]] = {}
    for read in reads:
        lines.setdefault(read.line, []).append(read)
    return lines


def _units(reads: list[Read]) -> str:
    units = [read.unit for read in reads]
    return place(units[0]) + _others(units)


def _others(names: list[str]) -> str:
    count = len(set(names)) - 1
    return f" (and {count} more)" if count else ""


def _own_name(read: Read) -> str:
    return read.parameter.removeprefix(f"{read.module}.")
