import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

from harness.backends.modules import (
    checkpoint_layers,
    held_bytes,
    own_name,
    profile_layers,
    round_to_bfloat16,
    sharding_units,
    weights_sha256,
)
from harness.backends.profile import FSDPProfile
from harness.errors import BadInput


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).tanh()


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + x


class Model(nn.Module):
    def __init__(self, *layer_classes: str) -> None:
        super().__init__()
        self.profile = FSDPProfile(layer_classes)
        self.layers = nn.ModuleList(Outer() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_layers_come_innermost_first():
    found = [type(layer).__name__ for layer in profile_layers(Model("Outer", "Inner"))]
    assert found == ["Inner", "Outer", "Inner", "Outer"]


def test_unknown_layer_class_is_an_error():
    with pytest.raises(BadInput, match=r"'Otter'.*Inner, Linear, Model, ModuleList, Outer.*did you mean \"Outer\""):
        profile_layers(Model("Outer", "Otter"))


def test_units_enclose_the_checkpoint_wrappers():
    model = Model("Outer")
    checkpoint_layers(model)
    units = sharding_units(model)
    assert len(units) == 2
    assert all(isinstance(unit, CheckpointWrapper) for unit in units)


def test_checkpointing_changes_neither_gradients_nor_own_names():
    torch.manual_seed(0)
    plain, recomputing = Model("Outer"), Model("Outer")
    recomputing.load_state_dict(plain.state_dict())
    checkpoint_layers(recomputing)
    inputs = torch.randn(3, 4)
    plain(inputs).sum().backward()
    recomputing(inputs).sum().backward()
    named = {own_name(name): p.grad for name, p in recomputing.named_parameters()}
    assert set(named) == {name for name, _ in plain.named_parameters()}
    assert all(torch.equal(named[name], p.grad) for name, p in plain.named_parameters())


def test_wrapper_parts_leave_the_name():
    assert own_name("_fsdp_wrapped_module.layers.0._checkpoint_wrapped_module.w") == "layers.0.w"
    assert own_name("module.weight") == "module.weight"


def test_rounding_keeps_the_dtype():
    model = Model("Outer")
    before = model.layers[0].inner.linear.weight.detach().clone()
    round_to_bfloat16(model)
    weight = model.layers[0].inner.linear.weight
    assert weight.dtype is torch.float32
    assert torch.equal(weight, before.bfloat16().float())
    assert not torch.equal(weight, before)


def test_hash_sees_a_single_bit_and_no_gradient():
    torch.manual_seed(0)
    model = Model("Outer")
    first = weights_sha256(model)
    model(torch.randn(1, 4)).sum().backward()
    assert weights_sha256(model) == first
    with torch.no_grad():
        model.layers[1].inner.linear.bias.view(torch.int32)[0] ^= 1
    assert weights_sha256(model) != first


def test_held_bytes():
    assert held_bytes([torch.zeros(3), None, torch.zeros(2, dtype=torch.bfloat16)]) == 16
