"""The sizes models come in."""

import pytest
import torch

from harness.models import MODELS, build, input_shape

PUBLISHED = {"pi0": 3238.0e6, "pi05": 3353.4e6, "dm0": 2429.6e6}
NEVER_REACHED = {"pi0": 109.0e6, "pi05": 109.0e6, "dm0": 46.1e6}
TOKENS = {"pi0": 3 * 256 + 48 + 51, "pi05": 3 * 256 + 200 + 50, "dm0": 3 * 169 + 200 + 50}
BY_PART = {
    "pi0": {"vision": 412.4e6, "projector": 2.4e6, "language": 1981.9e6 + 526.6e6, "action": 314.7e6},
    "pi05": {"vision": 412.4e6, "projector": 2.4e6, "language": 1981.9e6 + 526.6e6, "action": 430.1e6},
    "dm0": {"vision": 387.5e6, "projector": 8.4e6, "language": 1409.4e6 + 312.7e6, "action": 311.6e6},
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_full_has_the_published_parameters(full, model):
    built = full(model)
    assert sum(parameter.numel() for parameter in built.parameters()) == pytest.approx(PUBLISHED[model], rel=1e-3)
    frozen = sum(parameter.numel() for parameter in built.parameters() if not parameter.requires_grad)
    assert frozen == pytest.approx(NEVER_REACHED[model], rel=1e-3)
    assert built.tokens_per_sample() == TOKENS[model]
    by_part = {
        part: sum(parameter.numel() for module in modules for parameter in module.parameters())
        for part, modules in built.parts().items()
    }
    assert by_part == pytest.approx(BY_PART[model], abs=0.06e6)


@pytest.mark.parametrize("model", PUBLISHED)
def test_classes_to_wrap_exist_and_nothing_but_parameters_needs_values(full, model):
    built = full(model)
    assert "JointLayer" in built.profile.transformer_layer_cls_to_wrap
    assert set(built.profile.transformer_layer_cls_to_wrap) <= {type(module).__name__ for module in built.modules()}
    assert all(name.endswith("position_ids") for name, _ in built.named_buffers())


@pytest.mark.parametrize(("size", "parameters"), [("tiny", (10_000, 150_000)), ("micro", (1_200_000, 2_000_000))])
@pytest.mark.parametrize("model", PUBLISHED)
def test_small_sizes(model, size, parameters):
    with torch.device("meta"):
        built = build(model, size)
    low, high = parameters
    assert low < sum(parameter.numel() for parameter in built.parameters()) < high
    assert built.shape == input_shape(model, size)


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_is_in_one_part(model):
    with torch.device("meta"):
        built = build(model, "tiny")
    modules = [module for modules in built.parts().values() for module in modules]
    found = [id(parameter) for module in modules for parameter in module.parameters()]
    assert sorted(found) == sorted(id(parameter) for parameter in built.parameters())
