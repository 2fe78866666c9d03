"""Rules on how a model comes into being, and what follows for loading its weights."""

from __future__ import annotations

import torch

from harness.validate.findings import Finding, place
from harness.validate.subject import Subject


def meta_initialisation(subject: Subject) -> list[Finding]:
    """A build that needs real tensors.

    A model that is built on `meta` costs no memory until its shards are filled: `meta_init`, and every rank but the
    first under `cpu_ram_efficient_loading`. The harness also reads a model's input shape from such a build.
    """
    built = subject.on_meta
    if built.failure is not None:
        why = f"it cannot be built on `meta`: {built.failure.error}"
    elif built.left:
        shown = ", ".join(built.left[:3]) + (", …" if built.left[3:] else "")
        why = f"built on `meta` it still has real tensors: {shown}"
    else:
        return []
    return [
        Finding(
            rule="meta-initialisation",
            where=place(built.left[0].rpartition(".")[0] if built.left else ""),
            severity="error",
            why=f"{why}; cpu_ram_efficient_loading must be False, and shapes cannot be read",
            change="make tensors on the default device, without reading values (`.item()`, numpy, files) in __init__",
            line=built.failure.line if built.failure is not None else None,
        )
    ]


def weights_follow_seed(subject: Subject) -> list[Finding]:
    """Two builds under one seed of torch differ: ranks and backends would start from other weights."""
    again = dict(subject.fresh().named_parameters())
    other = [
        name
        for name, parameter in subject.model.named_parameters()
        if not torch.equal(parameter.detach(), again[name].detach())
    ]
    if not other:
        return []
    return [
        Finding(
            rule="weights-follow-seed",
            where=place(other[0].rpartition(".")[0]),
            severity="error",
            why=f"built twice under one seed, {len(other)} parameter(s) differ, {other[0]} among them",
            change="draw initial weights from torch's global generator alone",
        )
    ]


def efficient_loading(subject: Subject) -> tuple[bool, str]:
    """Whether `cpu_ram_efficient_loading` may be on, and why (not).

    Accelerate 1.15 sends each entry of rank 0's state dict as the shard of a DTensor, so a persistent buffer ends in
    "'Tensor' object has no attribute 'device_mesh'" (`fsdp2_load_full_state_dict`, huggingface/accelerate#3898).
    """
    if meta_initialisation(subject):
        return False, "the model cannot be built on `meta`"
    persistent = sorted(set(subject.model.state_dict()) - {name for name, _ in subject.model.named_parameters()})
    tied = {name for name, _ in subject.model.named_parameters(remove_duplicate=False)}
    buffers = [name for name in persistent if name not in tied]
    if buffers:
        return False, f"accelerate cannot send persistent buffers to other ranks: {buffers[0]}"
    return True, "the model can be built on `meta`, and all of its state is parameters"
