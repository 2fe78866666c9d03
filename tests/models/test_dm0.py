"""dm0: its mask by hand, and the whole model against a dense joint transformer."""

import pytest
import torch
import torch.nn.functional as F
from dense_joint import dense_velocity
from tiny_models import batch_of, tiny
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from harness.data.batch import Observation
from harness.models.dm0 import Dm0
from harness.models.joint import Rules, layout, noisy_actions, time_embedding


def test_the_prefix_is_causal_and_actions_see_all_of_it():
    """Three prefix tokens, the first of a missing camera, and two actions."""
    rules = Rules(state_tokens=0, action_tokens=2, head_dim=4, rope_base=1e6, causal_prefix=True)
    where = layout(torch.tensor([[False, True, True]]), rules, torch.float32)
    assert where.prefix_mask[0, 0].tolist() == [
        [True, True, True],  # not there itself: what it sees is read by nobody
        [False, True, False],
        [False, True, True],
    ]
    assert where.suffix_mask[0, 0].tolist() == [[False, True, True, True, True]] * 2


@pytest.fixture(scope="module")
def model() -> Dm0:
    return tiny("dm0")


def dense_loss(model: Dm0, observation: Observation, actions, noise, time):
    # θ as Qwen3 1.7B has it, told in both spellings of transformers 4 and 5.
    rope = {"rope_theta": 1e6, "rope_type": "default"}
    config = Qwen3Config(hidden_size=32, num_attention_heads=4, head_dim=8, rope_theta=1e6, rope_parameters=rope)
    point, velocity = noisy_actions(actions, noise, time)
    embedded = model.action_in_proj(point)
    times = time_embedding(time, 32)[:, None].expand_as(embedded)
    suffix = model.action_time_mlp_out(F.silu(model.action_time_mlp_in(torch.cat([embedded, times], -1))))
    starts = [1] * (model.tokens_per_sample() - 10) + [1] + [0] * 9
    return F.mse_loss(dense_velocity(model, Qwen3RotaryEmbedding(config), observation, suffix, None, starts), velocity)


@pytest.mark.parametrize("masks", [[True, True], [False, True]], ids=["all cameras", "no first camera"])
def test_loss_and_gradients_equal_a_dense_joint_transformer(model, masks):
    batch, time = batch_of(model.shape), torch.tensor([0.3, 0.9])
    observation = Observation(**{**vars(batch.observation), "image_masks": torch.tensor([masks, masks])})
    noise = torch.randn_like(batch.actions)
    expected = dense_loss(model, observation, batch.actions, noise, time)
    loss = model.loss(observation, batch.actions, noise, time)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for mine, theirs in zip(torch.autograd.grad(loss, trained), torch.autograd.grad(expected, trained), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-6)


def test_earlier_words_do_not_see_later_ones(model):
    """Changing the last word changes nothing that the tokens before it make of themselves."""
    batch = batch_of(model.shape)
    seen = []
    hook = model.layers[0].register_forward_hook(lambda _layer, _inputs, outputs: seen.append(outputs[0]))
    ids = batch.observation.input_ids.clone()
    ids[:, 8] = 1
    for observation in (batch.observation, Observation(**{**vars(batch.observation), "input_ids": ids})):
        model.loss(observation, batch.actions, torch.zeros_like(batch.actions), torch.full((2,), 0.5))
    hook.remove()
    last = model.tokens_per_sample() - 10 - model.shape.text_slots + 8
    assert torch.equal(seen[0][:, :last], seen[1][:, :last])
    assert not torch.equal(seen[0][:, last], seen[1][:, last])
