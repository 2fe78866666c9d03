"""Rules on parameters and buffers: who owns them, and what a backward does to them."""

from __future__ import annotations

from harness.validate.findings import Finding, place
from harness.validate.subject import Subject


def never_receives_gradient(subject: Subject) -> list[Finding]:
    """Trainable parameters that the loss does not reach.

    DDP without `find_unused_parameters` fails on the second step ("Expected to have finished reduction"), and
    gradient norms and optimizer state differ between backends (PyTorch, `DistributedDataParallel`).
    """
    owners: dict[str, list[str]] = {}
    for name, parameter in subject.model.named_parameters():
        if parameter.requires_grad and parameter.grad is None:
            owner, _, own = name.rpartition(".")
            owners.setdefault(owner, []).append(own)
    return [
        Finding(
            rule="never-receives-gradient",
            where=place(owner),
            severity="error",
            why=f"the loss does not reach {', '.join(names)}: DDP waits for gradients that never come",
            change="set requires_grad=False in __init__, or remove the module",
        )
        for owner, names in owners.items()
    ]
