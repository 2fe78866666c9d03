"""What pi0, pi05 and dm0 share: which parameters train, two layouts of one computation, recomputation."""

import pytest
import torch
from tiny_models import batch_of, tiny
from torch import Tensor

from harness.backends.modules import checkpoint_layers, sharding_units
from harness.data.shape import InputShape
from harness.errors import BadInput
from harness.models import build
from harness.models.base import VLA
from harness.models.flow import FlowConfig
from harness.models.pi0 import Pi0
from harness.models.vision import SiglipConfig

FLOW = ["pi0", "pi05", "dm0"]
UNREAD = [
    "self_attn.q_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "post_attention_layernorm",
]


def step(model: VLA) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradients, by the bare model's names."""
    loss = model(batch_of(model.shape))
    loss.backward()
    named = {name.replace("._checkpoint_wrapped_module", ""): p.grad for name, p in model.named_parameters()}
    return loss.detach(), {name: gradient for name, gradient in named.items() if gradient is not None}


def assert_same(one: VLA, other: VLA) -> None:
    (loss, gradients), (other_loss, other_gradients) = step(one), step(other)
    assert torch.equal(loss, other_loss)
    assert gradients.keys() == other_gradients.keys()
    assert all(torch.equal(gradients[name], other_gradients[name]) for name in gradients)


@pytest.mark.parametrize("model", FLOW)
def test_frozen_are_exactly_the_parameters_the_loss_cannot_reach(model):
    built = tiny(model)
    frozen = {name for name, parameter in built.named_parameters() if not parameter.requires_grad}
    unread = UNREAD + ["self_attn.q_norm"] * (model == "dm0")
    assert frozen == {f"layers.1.vlm.{part}.weight" for part in unread}
    built.requires_grad_(True)
    _, gradients = step(built)
    assert {name for name, _ in built.named_parameters()} - gradients.keys() == frozen
    assert all(gradient.any() for gradient in gradients.values())


@pytest.mark.parametrize("model", FLOW)
def test_raw_layout_is_the_same_computation_with_only_a_root_to_wrap(model):
    joint, raw = tiny(model), tiny(model, "raw")
    assert list(joint.state_dict()) == list(raw.state_dict())
    assert_same(joint, raw)
    batch = batch_of(joint.shape)
    noise = torch.randn_like(batch.actions)
    assert torch.equal(joint.denoise(batch.observation, noise), raw.denoise(batch.observation, noise))
    assert len(sharding_units(joint)) == (4 if model == "dm0" else 2)
    assert sharding_units(raw) == []
    assert not any(type(module).__name__ == "JointLayer" for module in raw.modules())


def test_raw_layers_are_never_called():
    """What per-layer wrapping would hang on to: in `raw` only the modules inside a layer are called."""
    model, called = tiny("pi0", "raw"), []
    for module in (model.layers[0], model.layers[0].vlm, model.layers[0].vlm.mlp):
        module.register_forward_hook(lambda module, *_: called.append(type(module).__name__))
    model(batch_of(model.shape))
    assert called == ["GemmaMLP"]


def with_siglip(layout: str) -> Pi0:
    """A pi0 with the published kind of tower, which transformers' own checkpointing flag reaches."""
    shape = InputShape(
        cameras=("agentview",), image_size=28, text_slots=10, vocabulary=64, state_dim=8, action_dim=8, chunk=4
    )
    sizes = {"layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 8, "width": 32, "ffn": 48}
    siglip = SiglipConfig(width=16, layers=2, heads=2, ffn=32, patch=14)
    torch.manual_seed(0)
    model = Pi0(FlowConfig(shape=shape, vision=siglip, expert_width=16, expert_ffn=24, **sizes))
    if layout == "raw":
        model.use_raw_layout()
    return model


def forwards(model: VLA, kind: str) -> list[int]:
    """How often a module of this class was called in a forward, and in forward and backward."""
    calls: list[str] = []
    for module in model.modules():
        if type(module).__name__ == kind:
            module.register_forward_pre_hook(lambda *_: calls.append(kind))
    loss = model(batch_of(model.shape))
    before = len(calls)
    loss.backward()
    return [before, len(calls)]


@pytest.mark.parametrize("layout", ["joint", "raw"])
@pytest.mark.parametrize("model", [*FLOW, "siglip"])
def test_recomputation_changes_neither_loss_nor_gradients(model, layout):
    plain, recomputing = (with_siglip(layout) if model == "siglip" else tiny(model, layout) for _ in range(2))
    checkpoint_layers(recomputing)
    assert_same(plain, recomputing)


@pytest.mark.parametrize(
    ("layout", "transformer", "tower"), [("joint", [3, 6], [2, 4]), ("raw", [3, 3], [2, 4])], ids=["joint", "raw"]
)
def test_what_is_recomputed_in_each_layout(layout, transformer, tower):
    """In `raw`, as in Dexbotic, the flag finds the tower's layers and none of the transformer's own.

    Of four MLPs in two layers of VLM and expert the last VLM's is not called, of the tower's two both are.
    """
    model = with_siglip(layout)
    checkpoint_layers(model)
    assert forwards(model, "GemmaMLP") == transformer
    model = with_siglip(layout)
    checkpoint_layers(model)
    assert forwards(model, "SiglipMLP") == tower


@pytest.mark.parametrize(
    ("names", "still"),
    [
        (["vision"], {"projector", "language", "action"}),
        (["vlm"], {"action"}),
        (["vision", "vlm"], {"action"}),
    ],
)
def test_frozen_parts_get_no_gradient_and_the_others_do(names, still):
    model = tiny("dm0")
    never = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    model.freeze(names)
    _, gradients = step(model)
    expected = {id(parameter) for part in still for module in model.parts()[part] for parameter in module.parameters()}
    trained = {name for name, parameter in model.named_parameters() if id(parameter) in expected} - never
    assert gradients.keys() == trained
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == trained


def test_a_model_of_one_layout_says_so():
    class Other(type(build("pi0", "tiny"))):
        use_raw_layout = VLA.use_raw_layout

    with pytest.raises(BadInput, match="layout = 'raw': expected \"joint\""):
        Other(tiny("pi0").config).use_raw_layout()
