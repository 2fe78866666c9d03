"""pi0 against transformers' own, and the claims it makes about itself."""

import re

import pytest
import torch
from tiny_models import batch_of
from torch import Tensor
from transformers import PI0Config, PI0ForConditionalGeneration

from harness.data.batch import Batch, Observation
from harness.data.shape import InputShape
from harness.errors import BadInput
from harness.models import build, input_shape
from harness.models.flow import FlowConfig
from harness.models.pi0 import Pi0
from harness.models.vision import SiglipConfig

CAMERAS, SLOTS, WORDS, CHUNK, DIM = 2, 6, 128, 8, 8
HF_NAMES = [
    (r"^model\.vlm\.language_model\.layers\.(\d+)\.", r"layers.\1.vlm."),
    (r"^model\.dit\.layers\.(\d+)\.", r"layers.\1.expert."),
    (r"^model\.dit\.norm\.", "norm."),
    (r"^model\.vlm\.language_model\.embed_tokens\.", "embed_tokens."),
    (r"^model\.vlm\.vision_tower\.", "vision.tower."),
    (r"^model\.vlm\.multi_modal_projector\.linear\.", "vision.projector."),
    (r"^embed_action_time\.", ""),
]
"""transformers' parameter names → ours."""
HF_UNREAD = ("model.dit.embed_tokens.", "model.vlm.language_model.norm.")
"""Parameters of transformers' pi0 that nothing reads."""


def theirs() -> PI0ForConditionalGeneration:
    gemma = {
        "model_type": "gemma",
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": WORDS,
    }
    siglip = {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": 14,
        "image_size": 28,
        "vision_use_head": False,
        "projection_dim": 64,
    }
    vlm = {
        "model_type": "paligemma",
        "text_config": gemma | {"hidden_size": 64, "intermediate_size": 128},
        "vision_config": siglip,
        "projection_dim": 64,
        "image_token_id": WORDS,
    }
    config = PI0Config(
        vlm_config=vlm,
        dit_config=gemma | {"hidden_size": 32, "intermediate_size": 64},
        chunk_size=CHUNK,
        max_state_dim=DIM,
        max_action_dim=DIM,
    )
    torch.manual_seed(0)
    model = PI0ForConditionalGeneration(config).train()
    for parameter in model.parameters():  # norms start at zero or one: all must matter
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return model


def ours() -> Pi0:
    shape = InputShape(
        cameras=("agentview", "wrist"),
        image_size=28,
        text_slots=SLOTS,
        vocabulary=WORDS,
        state_dim=DIM,
        action_dim=DIM,
        chunk=CHUNK,
    )
    return Pi0(
        FlowConfig(
            shape=shape,
            vision=SiglipConfig(width=32, layers=2, heads=2, ffn=64, patch=14),
            layers=3,
            heads=4,
            kv_heads=1,
            head_dim=16,
            width=64,
            ffn=128,
            expert_width=32,
            expert_ffn=64,
        )
    )


def our_name(name: str) -> str:
    for pattern, ours in HF_NAMES:
        name = re.sub(pattern, ours, name)
    return name


@pytest.fixture(scope="module")
def pair() -> tuple[PI0ForConditionalGeneration, Pi0]:
    hf, model = theirs(), ours()
    weights = {our_name(name): value for name, value in hf.state_dict().items() if not name.startswith(HF_UNREAD)}
    model.load_state_dict(weights)  # strict: the same set of names and shapes
    return hf, model


def inputs() -> tuple[Observation, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    count = 3
    filled = torch.arange(SLOTS) < torch.tensor([[6], [3], [4]])
    observation = Observation(
        images=torch.randn(count, CAMERAS, 3, 28, 28),
        image_masks=torch.ones(count, CAMERAS, dtype=torch.bool),
        input_ids=torch.randint(5, WORDS, (count, SLOTS)),
        attention_mask=filled,
        state=torch.randn(count, DIM),
    )
    return observation, torch.randn(count, CHUNK, DIM), torch.randn(count, CHUNK, DIM), torch.rand(count)


def hf_inputs(observation: Observation) -> dict[str, Tensor]:
    count, tokens = len(observation.state), CAMERAS * 4
    return {
        "state": observation.state,
        "input_ids": torch.cat([torch.full((count, tokens), WORDS), observation.input_ids], 1),
        "attention_mask": torch.cat([torch.ones(count, tokens).long(), observation.attention_mask.long()], 1),
        "pixel_values": observation.images,
        "pixel_attention_mask": observation.image_masks,
    }


def test_loss_and_every_gradient_equal_transformers(pair):
    hf, model = pair
    observation, actions, noise, time = inputs()
    expected = hf(**hf_inputs(observation), actions=actions, noise=noise, timestep=time).loss
    loss = model.loss(observation, actions, noise, time)
    expected.backward()
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-6)
    mine = dict(model.named_parameters())
    compared = 0
    for name, parameter in hf.named_parameters():
        if parameter.grad is not None and not name.startswith(HF_UNREAD):
            torch.testing.assert_close(mine[our_name(name)].grad, parameter.grad, rtol=1e-4, atol=1e-6, msg=name)
            compared += 1
    assert compared == sum(parameter.requires_grad for parameter in model.parameters())


def test_samples_equal_transformers(pair):
    hf, model = pair
    observation, _, noise, _ = inputs()
    expected = hf.eval().sample_actions(**hf_inputs(observation), noise=noise, num_steps=10)
    torch.testing.assert_close(model.denoise(observation, noise), expected, rtol=0, atol=1e-5)


def tiny_batch(seed: int = 0) -> Batch:
    return batch_of(input_shape("pi0", "tiny"), seed)


def test_the_last_prefix_is_not_computed():
    model = build("pi0", "tiny")
    seen = []
    model.layers[-1].register_forward_hook(lambda layer, inputs, outputs: seen.append(outputs[0]))
    model(tiny_batch())
    assert seen == [None]


def test_loss_is_a_function_of_batch_and_generator():
    torch.manual_seed(0)
    model = build("pi0", "tiny")
    first = model(tiny_batch(3))
    batch = tiny_batch(3)
    torch.manual_seed(99)
    assert torch.equal(first, model(batch))
    other = Batch(batch.observation, batch.actions, torch.Generator().manual_seed(4))
    assert not torch.equal(first, model(other))
    assert first.dtype == torch.float32 and first.shape == ()


def test_build_is_a_function_of_the_global_seed():
    def weights(seed: int) -> dict[str, Tensor]:
        torch.manual_seed(seed)
        return build("pi0", "tiny").state_dict()

    assert all(torch.equal(value, weights(1)[name]) for name, value in weights(1).items())
    assert not torch.equal(weights(1)["norm.weight"] + weights(1)["state_proj.weight"].sum(), weights(2)["norm.weight"])


def test_a_masked_camera_and_padded_words_are_not_seen():
    torch.manual_seed(0)
    model = build("pi0", "tiny")
    batch = tiny_batch()
    seen = batch.observation
    masks = torch.tensor([[True, False], [True, False]])
    images, ids = seen.images.clone(), seen.input_ids.clone()
    images[:, 1], ids[:, 9:] = 0.5, 3
    noise = torch.randn(2, 10, 7)
    one = Observation(seen.images, masks, seen.input_ids, seen.attention_mask, seen.state)
    two = Observation(images, masks, ids, seen.attention_mask, seen.state)
    assert torch.equal(model.denoise(one, noise), model.denoise(two, noise))
    assert not torch.allclose(model.denoise(one, noise), model.denoise(seen, noise))


def test_unknown_names_are_one_clear_error():
    with pytest.raises(BadInput, match='did you mean "micro"'):
        build("pi0", "mikro")
    with pytest.raises(BadInput, match="pi0"):
        input_shape("pi9", "micro")
