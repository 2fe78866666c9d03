"""The profile a model should declare, found by trying: what can be sharded layer by layer, and what may be loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from torch import nn

from harness.backends.profile import FSDPProfile
from harness.models.base import VLA
from harness.validate.findings import Finding, place
from harness.validate.initialisation import efficient_loading
from harness.validate.subject import Subject
from harness.validate.tracing import Trace
from harness.validate.weights import unit_of


@dataclass(frozen=True)
class Advice:
    """A profile, and a sentence for each choice in it."""

    profile: FSDPProfile
    why: tuple[str, ...]


def advise_profile(build: Callable[[], VLA]) -> Advice:
    """The finest wrapping by repeated layers that a step in bfloat16 survives, from the declared profile on.

    Args:
        build: see `harness.validate.contract.check_model`.
    """
    return advised(Subject(build))


def advised(subject: Subject) -> Advice:
    classes, held = repeated_layers(subject.model)
    why = [f"{name} has no forward: what is in it is used from outside, in its parent's unit" for name in held]
    trace = _trace(subject, classes)
    while classes and (refused := _refusals(subject, classes, trace)):
        classes = [name for name in classes if name not in refused]
        why += [f"{name} stays in its parent's unit: {reason}" for name, reason in refused.items()]
        trace = _trace(subject, classes)
    if classes:
        why.append(f"sharded bottom-up, one unit each: {', '.join(classes)}")
    elif trace.failure is None:
        why.append("the root alone: there is no repeated layer that can be a unit of its own")
    if trace.failure is not None:
        why.append(f"FSDP cannot wrap it: {trace.failure.error}")
    loading, reason = efficient_loading(subject)
    why.append(f"cpu_ram_efficient_loading may be {'True' if loading else 'False only'}: {reason}")
    profile = replace(
        subject.model.profile,
        transformer_layer_cls_to_wrap=tuple(classes),
        enabled=trace.failure is None,
        cpu_ram_efficient_loading=loading,
    )
    return Advice(profile, tuple(why))


def root_alone(subject: Subject) -> list[Finding]:
    """A profile without layers, although there are layers that could be units of their own.

    The root alone gathers the whole model on every rank for each step, so its peak memory is near DDP's.
    """
    declared = subject.model.profile
    if declared.transformer_layer_cls_to_wrap or not declared.enabled or subject.step.failure:
        return []
    classes = advised(subject).profile.transformer_layer_cls_to_wrap
    if not classes:
        return []
    first = next(path for path, module in subject.model.named_modules() if type(module).__name__ in classes)
    return [
        Finding(
            rule="root-alone",
            where=place(first),
            severity="warning",
            why=f"the profile wraps the root alone, but {', '.join(classes)} can be sharded layer by layer",
            change=f"profile = FSDPProfile({classes!r})",
        )
    ]


class Layers(NamedTuple):
    """Classes of repeated layers.

    Attributes:
        called: those with a forward; each may be a unit.
        held: those without one, mere holders whose parts are driven from outside.
    """

    called: list[str]
    held: list[str]


def repeated_layers(model: nn.Module) -> Layers:
    """Two or more of a class in one list, each with modules inside; of nested ones the outermost with a forward."""
    found = Layers([], [])
    inside: list[str] = []
    for path, module in model.named_modules():
        if not isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential) or unit_of(path, inside):
            continue
        children = dict(module.named_children())
        kinds = [type(child).__name__ for child in children.values()]
        for name, child in children.items():
            kind = type(child).__name__
            is_layer = any(True for _ in child.children()) and any(True for _ in child.parameters())
            if kinds.count(kind) < 2 or not is_layer:
                continue
            has_forward = type(child).forward is not nn.Module.forward
            inside += [f"{path}.{name}"] if has_forward else []
            kept = found.called if has_forward else found.held
            kept += [] if kind in kept else [kind]
    return found


def profile_toml(profile: FSDPProfile, key: str) -> str:
    """The profile as a suite's table below `[models.<key>]`; what is left out is the model's own."""
    given = {name: value for name, value in asdict(profile).items() if value is not None}
    return f"[models.{key}.profile]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items())


def _trace(subject: Subject, classes: list[str]) -> Trace:
    return subject.sharded_by(_paths(subject, classes))


def _paths(subject: Subject, classes: list[str]) -> list[str]:
    return [path for path, module in subject.model.named_modules() if type(module).__name__ in classes][::-1]


def _refusals(subject: Subject, classes: list[str], trace: Trace) -> dict[str, str]:
    """Class → why it cannot be a unit. Where a step fails and nothing says why, all of them."""
    refused: dict[str, str] = {}
    for read in trace.reads:
        if not read.of_dtype:
            kind = type(subject.model.get_submodule(read.unit)).__name__
            refused.setdefault(kind, f"its {read.parameter} is used outside of it at {read.line}")
    if trace.failure is not None and not refused:
        unit = unit_of(trace.failure.module, _paths(subject, classes))
        blamed = [type(subject.model.get_submodule(unit)).__name__] if unit else classes
        refused = {kind: f"a sharded step ends in {trace.failure.error}" for kind in blamed}
    return refused
