"""Each rule on the forward, with a model that breaks it, and with what is allowed although it looks the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from sound_model import WIDTH, Block, Sound
from torch import nn
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method

from harness.backends.profile import FSDPProfile
from harness.validate.contract import check_model
from harness.validate.findings import Finding


def only(model: type[Sound], rule: str) -> Finding:
    """The one finding there is."""
    found = check_model(model)
    assert [finding.rule for finding in found] == [rule]
    return found[0]


class Drops(Block):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(super().forward(x))


class WithDropout(Sound):
    profile = FSDPProfile(("Drops",))

    def block(self):
        return Drops()


class OwnNoise(Sound):
    def predict(self, x):
        return super().predict(x + torch.rand(len(x), 1).to(x))


class BatchNoise(Sound):
    """Noise by the batch's own generator, on the CPU, then moved."""

    def forward(self, batch):
        noise = torch.rand(len(batch.actions), 1, 1, generator=batch.generator).to(batch.actions)
        return super().forward(replace(batch, actions=batch.actions + noise))


@pytest.mark.parametrize(("model", "where"), [(WithDropout, "blocks.0.drop"), (OwnNoise, "head")])
def test_random_numbers_that_are_not_the_batchs(model, where):
    found = only(model, "draws-elsewhere")
    assert (found.where, found.severity) == (where, "error")


def test_those_of_the_batch_are_allowed():
    assert check_model(BatchNoise) == []


class ByForward(Sound):
    def through(self, x):
        for block in self.blocks:
            x = block.forward(x)  # ByForward
        return x


class InsideUnshard(Sound):
    def through(self, x):
        for block in self.blocks:
            if isinstance(block, FSDPModule):
                block.unshard()
            x = block.forward(x)
        return x


class Encoder(Block):
    def encode(self, x):
        return super().forward(x)


class Encodes(Sound):
    profile = FSDPProfile(("Encoder",))
    registers = False

    def block(self):
        return Encoder()

    def through(self, x):
        for block in self.blocks:
            if self.registers:
                register_fsdp_forward_method(block, "encode")
            x = block.encode(x)  # Encodes
        return x


class EncodesRegistered(Encodes):
    registers = True


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def test_a_layers_forward_that_is_not_called_by_its_module():
    found = only(ByForward, "direct-forward")
    assert (found.where, found.severity) == ("blocks.0", "error")
    assert found.line.endswith(f"test_contract_forwards.py:{line_of('ByForward')}")


def test_inside_unshard_it_is_allowed():
    assert check_model(InsideUnshard) == []


def test_a_method_of_a_layer_that_fsdp_does_not_know():
    found = check_model(Encodes)
    assert {(finding.rule, finding.severity) for finding in found} == {("reads-inside-layers", "error")}
    assert found[0].where == "blocks.0.up"


def test_registered_it_is_allowed():
    assert check_model(EncodesRegistered) == []


class Shortcut(Block):
    def forward(self, x):
        return x + self.down(F.gelu(self.up.forward(x)))  # Shortcut


class WithShortcut(Sound):
    profile = FSDPProfile(("Shortcut",))

    def block(self):
        return Shortcut()


def test_a_forward_inside_a_unit_is_a_warning_for_zero_3():
    found = only(WithShortcut, "direct-forward")
    assert (found.where, found.severity) == ("blocks.0.up", "warning")
    assert found.line.endswith(f":{line_of('Shortcut')}")
    assert "(and 1 more)" in found.why and "ZeRO-3" in found.why


class CallsInside(Sound):
    """Dexbotic's way with pi0: the root calls the projections of its layers."""

    def through(self, x):
        for block in self.blocks:
            x = x + block.down(F.gelu(block.up(x)))
        return x


class UsesTheWeight(Sound):
    def through(self, x):
        return x + F.linear(super().through(x), self.blocks[1].up.weight[:WIDTH])


class TakesTheDtype(Sound):
    def through(self, x):
        return super().through(x.to(self.blocks[0].up.weight.dtype))


class RootAlone(CallsInside):
    profile = FSDPProfile(())


@pytest.mark.parametrize(("model", "where"), [(CallsInside, "blocks.0.up"), (UsesTheWeight, "blocks.1.up")])
def test_parameters_of_a_layer_used_from_outside(model, where):
    found = check_model(model)
    assert {(one.rule, one.severity) for one in found} == {("reads-inside-layers", "error")}
    assert where in {one.where for one in found}
    assert all("root alone" in one.change and "test_contract_forwards.py:" in one.line for one in found)


def test_its_dtype_alone_is_a_warning():
    found = only(TakesTheDtype, "reads-inside-layers")
    assert (found.where, found.severity) == ("blocks.0.up", "warning")


def test_sharded_at_the_root_alone_it_is_allowed():
    assert check_model(RootAlone) == []


class RawImages(Sound):
    def see(self, images):
        return self.projector(self.vision(images[:, 0]).flatten(1))


class WideFeatures(Sound):
    def see(self, images):
        return self.projector(self.vision(images[:, 0].to(self.dtype())).flatten(1).float()).to(self.dtype())


class ManualHead(Sound):
    def predict(self, x):
        return F.linear(x.float(), self.head.weight, self.head.bias).float()


class WideHead(Sound):
    def predict(self, x):
        return self.head(x.float()).float()


@pytest.mark.parametrize(
    ("model", "where", "function"),
    [
        (RawImages, "vision", "conv2d gets float32 and bfloat16"),
        (WideFeatures, "projector", "linear gets float32 and bfloat16"),
        (ManualHead, "(model)", "linear gets float32 and bfloat16"),
        (WideHead, "head", "linear gets float32 and bfloat16"),
    ],
)
def test_two_dtypes_in_a_product(model, where, function):
    found = only(model, "mixed-dtypes")
    assert (found.where, found.severity) == (where, "error")
    assert function in found.why
    assert "test_contract_forwards.py:" in found.line


class HostMask(Sound):
    def through(self, x):
        return super().through(x) * torch.ones(WIDTH)


class HostTable(Sound):
    def predict(self, x):
        return super().predict(x) + F.linear(x.float(), torch.zeros(14, WIDTH))


class HostMaskMoved(Sound):
    def through(self, x):
        return super().through(x) * torch.ones(WIDTH).to(x)


@pytest.mark.parametrize(("model", "function"), [(HostMask, "mul"), (HostTable, "linear")])
def test_a_tensor_made_on_the_host(model, function):
    found = [one for one in check_model(model) if one.rule == "mixed-devices"]
    assert [(one.where, one.severity) for one in found] == [("(model)", "error")]
    assert f"{function} gets meta and cpu" in found[0].why


def test_made_there_and_moved_it_is_allowed():
    assert check_model(HostMaskMoved) == []


class NarrowLoss(Sound):
    def predict(self, x):
        return self.head(x)

    def forward(self, batch):
        return super().forward(batch).to(self.dtype())


def test_a_loss_in_bfloat16():
    found = only(NarrowLoss, "loss-in-float32")
    assert (found.where, found.severity) == ("(model)", "error")


class Undeclared(Sound):
    profile = FSDPProfile(())


class NestedUndeclared(Sound):
    profile = FSDPProfile(())

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(*(nn.Sequential(Block(), Block()) for _ in range(2)))

    def through(self, x):
        return self.inner(super().through(x))


@pytest.mark.parametrize("model", [Undeclared, NestedUndeclared])
def test_the_root_alone_where_layers_could_be_sharded(model):
    found = only(model, "root-alone")
    assert (found.where, found.severity) == ("blocks.0", "warning")
    assert "'Block'," in found.change
