"""The torch optimizer every backend gets, the same object class everywhere, with nothing left to defaults."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from harness.errors import MachineFault
from harness.suite import Optimizer


def build_optimizer(
    parameters: Iterable[nn.Parameter], settings: Optimizer, device: torch.device
) -> torch.optim.Optimizer:
    """AdamW or plain SGD. `foreach` on accelerators, single-tensor loops on CPU, never fused: alike in all backends."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    foreach = device.type != "cpu"
    if settings.name == "sgd":
        return torch.optim.SGD(
            trained, lr=settings.lr, weight_decay=settings.weight_decay, foreach=foreach, fused=False
        )
    return torch.optim.AdamW(
        trained,
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        foreach=foreach,
        fused=False,
    )


def settings_in_force(optimizer: torch.optim.Optimizer, asked: Optimizer) -> Optimizer:
    """The hyper-parameters read back from the live optimizer; the schedule is the loop's and taken from `asked`.

    `lr` is what the optimizer was built with: the schedule moves the current value.

    Raises:
        MachineFault: an external script has brought another optimizer than these two.
    """
    group, names = optimizer.param_groups[0], {torch.optim.AdamW: "adamw", torch.optim.SGD: "sgd"}
    name = names.get(type(optimizer))
    if name is None:
        raise MachineFault(f"{type(optimizer).__name__}'s settings are not known here; those of AdamW and SGD are")
    found = {"name": name, "lr": optimizer.defaults["lr"], "weight_decay": group["weight_decay"]}
    if name == "adamw":
        found |= {"beta1": group["betas"][0], "beta2": group["betas"][1], "eps": group["eps"]}
    return Optimizer.model_validate(asked.model_dump() | found)


def foreign_parameters(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of a model's trainable parameters that its optimizer does not update.

    After sharding every one is a DTensor; an optimizer built before knows only their predecessors.
    """
    known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return [
        name for name, parameter in model.named_parameters() if parameter.requires_grad and id(parameter) not in known
    ]
