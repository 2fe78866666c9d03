"""cogact's parts against transformers' own, and the claims it makes about itself."""

from dataclasses import replace

import pytest
import torch
from published import COGACT, WORDS, observed, small
from torch import Tensor
from transformers import CLIPVisionConfig, CLIPVisionModel, Qwen2Config, Qwen2Model

from harness.data.batch import Batch, Observation
from harness.data.shape import InputShape
from harness.models import build, input_shape
from harness.models.cogact import ROPE_BASE, CogAct
from harness.models.dit import DIT_B, DIT_L, DIT_S, DiT, DiTConfig, time_features
from harness.models.flops import count


def cogact() -> CogAct:
    model = small("CogAct", 0)
    assert isinstance(model, CogAct)
    return model


@pytest.fixture(scope="module")
def model() -> CogAct:
    return cogact()


def batch_of(shape: InputShape, seed: int = 0) -> Batch:
    seen = observed(shape)
    torch.manual_seed(seed)
    return Batch(seen, torch.randn(2, shape.chunk, shape.action_dim), torch.Generator().manual_seed(seed))


def test_the_tower_reads_the_layer_before_the_last(model):
    clip = CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2, image_size=28, patch_size=14
    )
    theirs = CLIPVisionModel(clip).eval()
    names = {name.replace("unread.", "encoder.layers."): name for name in model.vision.state_dict()}
    weights = model.vision.state_dict()
    prefix = "vision_model." if hasattr(theirs, "vision_model") else ""
    theirs.load_state_dict(
        {
            prefix + name.removeprefix("tower."): weights[own]
            for name, own in names.items()
            if not name.startswith("projector.")
        }
    )
    images = torch.randn(2, 3, 28, 28)
    hidden = theirs(pixel_values=images, output_hidden_states=True).hidden_states[-2][:, 1:]
    torch.testing.assert_close(model.vision(images), model.vision.projector(hidden), atol=1e-5, rtol=0)


def test_the_condition_is_qwens_last_valid_state(model):
    config = Qwen2Config(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=WORDS,
        rope_theta=ROPE_BASE,  # transformers 4
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
    )
    theirs = Qwen2Model(config).eval()
    own = model.state_dict()
    theirs.load_state_dict({name: own[name] for name in theirs.state_dict()})
    seen = observed(model.shape)
    images = model.vision(seen.images.flatten(0, 1)).reshape(2, 8, 64)
    embedded = torch.cat([images, model.embed_tokens(seen.input_ids)], 1)
    mask = torch.cat([torch.ones(2, 8), seen.attention_mask], 1).long()
    hidden = theirs(inputs_embeds=embedded, attention_mask=mask).last_hidden_state
    expected = torch.stack([hidden[0, 8 + 5], hidden[1, 8 + 2]])
    torch.testing.assert_close(model._condition(seen), expected, atol=1e-5, rtol=0)


def test_padding_and_missing_cameras_are_not_seen(model):
    seen = observed(model.shape)
    ids = seen.input_ids.clone()
    ids[1, 3:] = 5
    other = Observation(seen.images, seen.image_masks, ids, seen.attention_mask, seen.state)
    noise = model.noise(2, torch.Generator().manual_seed(0))
    assert torch.equal(model.denoise(seen, noise), model.denoise(other, noise))
    blind = Observation(seen.images, torch.zeros_like(seen.image_masks), ids, seen.attention_mask, seen.state)
    dark = Observation(seen.images * 0, torch.zeros_like(seen.image_masks), ids, seen.attention_mask, seen.state)
    assert torch.isfinite(model.denoise(blind, noise)).all()
    assert torch.equal(model.denoise(blind, noise), model.denoise(dark, noise))
    assert not torch.allclose(model.denoise(blind, noise), model.denoise(other, noise))


def test_frozen_are_exactly_the_parameters_the_loss_cannot_reach():
    model = cogact()
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert {name.split(".")[1] for name in frozen} == {"unread", "tower"}
    model.requires_grad_(True)
    batch, dropped = batch_of(model.shape), torch.tensor([True, False])
    noise = model.noise(2, batch.generator)
    model.loss(batch.observation, batch.actions, noise, torch.tensor([3, 50]), dropped).backward()
    assert {name for name, parameter in model.named_parameters() if parameter.grad is None} == frozen
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters() if parameter.grad is not None)


def test_loss_is_a_function_of_batch_and_generator(model):
    first = model(batch_of(model.shape, 3))
    batch = batch_of(model.shape, 3)
    torch.manual_seed(99)
    assert torch.equal(first, model(batch))
    other = Batch(batch.observation, batch.actions, torch.Generator().manual_seed(4))
    assert not torch.equal(first, model(other))
    assert first.dtype == torch.float32 and first.shape == ()


def test_loss_is_the_mean_over_repeats(model):
    batch = batch_of(model.shape)
    seen, actions = batch.observation, batch.actions
    noise = model.noise(6, torch.Generator().manual_seed(1))
    time, dropped = torch.tensor([3, 99, 0, 50, 7, 20]), torch.tensor([0, 1, 0, 0, 1, 0]).bool()
    whole = model.loss(seen, actions, noise, time, dropped)
    parts = [model.loss(seen, actions, noise[i : i + 2], time[i : i + 2], dropped[i : i + 2]) for i in range(0, 6, 2)]
    torch.testing.assert_close(whole, torch.stack(parts).mean())


def test_a_dropped_condition_hides_the_observation(model):
    batch = batch_of(model.shape)
    noise, time = model.noise(2, torch.Generator().manual_seed(1)), torch.tensor([3, 50])

    def loss(seen: Observation, dropped: bool) -> Tensor:
        return model.loss(seen, batch.actions, noise, time, torch.full((2,), dropped))

    seen = batch.observation
    other = Observation(seen.images + 1, seen.image_masks, seen.input_ids, seen.attention_mask, seen.state)
    assert torch.equal(loss(seen, dropped=True), loss(other, dropped=True))
    assert not torch.equal(loss(seen, dropped=False), loss(other, dropped=False))


def test_dropout_and_times_have_their_rates(model, monkeypatch):
    drawn = []
    monkeypatch.setattr(model, "loss", lambda seen, actions, noise, time, dropped: drawn.append((time, dropped)))
    seen = observed(model.shape, (6,) * 500)
    model(Batch(seen, torch.zeros(500, 8, 8), torch.Generator().manual_seed(0)))
    time, dropped = drawn[0]
    assert len(time) == 500 * model.config.repeats == len(dropped)
    assert dropped.float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert (time.min(), time.max()) == (0, 99) and time.float().mean().item() == pytest.approx(49.5, abs=2)


def test_guidance_differs_from_the_plain_prediction():
    model = cogact()
    seen, noise = observed(model.shape), torch.randn(2, 8, 8)
    guided = model.denoise(seen, noise)
    model.config = replace(COGACT, guidance=1.0)
    assert guided.shape == (2, 8, 8) and not torch.allclose(guided, model.denoise(seen, noise))


@pytest.mark.parametrize(("head", "parameters"), [(DIT_S, 13e6), (DIT_B, 89e6), (DIT_L, 308e6)])
def test_heads_have_the_sizes_of_the_paper(head, parameters):
    """As arXiv 2411.19650 rounds them, for its 4096-wide language model."""
    with torch.device("meta"):
        model = DiT(head, 4096, 7, 16)
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(parameters, rel=0.05)


def test_the_head_starts_with_no_opinion():
    torch.manual_seed(0)
    head = DiT(DiTConfig(2, 32, 4), 16, 7, 8)
    assert torch.equal(head(torch.randn(2, 8, 7), torch.tensor([1, 2]), torch.randn(2, 16)), torch.zeros(2, 8, 7))
    assert all(parameter.isfinite().all() for parameter in head.parameters())


def test_time_features_are_cosines_then_sines():
    features = time_features(torch.tensor([0, 2]))
    assert features.shape == (2, 256)
    assert features[0].tolist() == [1.0] * 128 + [0.0] * 128
    assert features[1, [0, 128]].tolist() == pytest.approx([-0.41614684, 0.90929743])
    assert features[1, 64].item() == pytest.approx(0.99980001)  # half way down to the longest period: 2/100


def test_full_is_the_published_model():
    with torch.device("meta"):
        model = build("cogact", "full")
    frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
    parts = {
        name: sum(parameter.numel() for module in modules for parameter in module.parameters())
        for name, modules in model.parts().items()
    }
    assert sum(parts.values()) == sum(parameter.numel() for parameter in model.parameters())
    assert sum(parts.values()) == pytest.approx(7478.7e6, rel=1e-3)
    expected = {"vision": 303.5e6, "projector": 16.5e6, "language": 7070.1e6, "action": 88.6e6}
    assert parts == pytest.approx(expected, rel=2e-3)
    assert frozen == pytest.approx(12.6e6, rel=1e-3)
    assert model.tokens_per_sample() == 576 + 64
    # The published figure, 26.76, counts the last CLIP layer's forward, which is not run here.
    assert 3 * model.forward_flops() == pytest.approx(26.76e12, rel=1e-3)
    assert set(model.profile.transformer_layer_cls_to_wrap) <= {type(module).__name__ for module in model.modules()}


def test_counted_flops_are_those_of_the_formula():
    with torch.device("meta"):
        model = cogact()
    assert model.forward_flops() == count(model).forward


@pytest.mark.full
def test_counted_flops_of_full():
    with torch.device("meta"):
        counted = count(build("cogact", "full"))
    assert counted.training == pytest.approx(26.76e12, rel=1e-3)


@pytest.mark.parametrize(("size", "parameters"), [("tiny", (10_000, 150_000)), ("micro", (1_500_000, 2_500_000))])
def test_small_sizes(size, parameters):
    model = build("cogact", size)
    low, high = parameters
    assert low < sum(parameter.numel() for parameter in model.parameters()) < high
    assert model.shape == input_shape("cogact", size)


def test_tiny_learns_one_batch():
    torch.manual_seed(0)
    model = build("cogact", "tiny")
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    losses = []
    for _ in range(30):
        loss = model(batch_of(model.shape))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(1.0, abs=0.15) and losses[-1] < 0.7 * losses[0]
