"""pi0 against transformers' own, and the claims it makes about itself."""

import pytest
import torch
from published import CHUNK, DIM, SHAPE, WORDS, small, transformers_pi0
from tiny_models import batch_of
from torch import Tensor
from transformers import PI0ForConditionalGeneration

from harness.data.batch import Batch, Observation
from harness.errors import BadInput
from harness.models import build, input_shape
from harness.models.formats.rules import TRANSFORMERS_PI0
from harness.models.pi0 import Pi0

CAMERAS, SLOTS = len(SHAPE.cameras), SHAPE.text_slots


@pytest.fixture(scope="module")
def pair() -> tuple[PI0ForConditionalGeneration, Pi0]:
    hf, model = transformers_pi0(), small("Pi0", 0)
    weights = hf.state_dict()
    model.load_state_dict({name: weights[TRANSFORMERS_PI0.published(name)] for name in model.state_dict()})
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
    theirs = dict(hf.named_parameters())
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name, parameter in trained.items():
        wanted = theirs[TRANSFORMERS_PI0.published(name)].grad
        torch.testing.assert_close(parameter.grad, wanted, rtol=1e-4, atol=1e-6, msg=name)
    read = [name for name, parameter in theirs.items() if parameter.grad is not None]
    assert len([name for name in read if not TRANSFORMERS_PI0.is_unread(name)]) == len(trained)


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
