"""pi05: adaptive norms by hand, and the whole model against a dense joint transformer."""

import pytest
import torch
import torch.nn.functional as F
from dense_joint import dense_velocity
from tiny_models import batch_of, tiny
from transformers import GemmaConfig
from transformers.models.gemma.modeling_gemma import GemmaRotaryEmbedding

from harness.models import build
from harness.models.joint import AdaRMSNorm, noisy_actions, time_embedding
from harness.models.pi05 import Pi05


def test_adaptive_norm_by_hand():
    norm = AdaRMSNorm(width=2, condition_width=1, eps=0.0)
    # Rows of the projection: two scales, two shifts, two gates.
    norm.dense.weight.data = torch.tensor([[1.0], [0.0], [0.0], [0.5], [2.0], [-1.0]])
    norm.dense.bias.data = torch.tensor([0.0, 0.0, 0.25, 0.0, 0.0, 3.0])
    out, gate = norm(torch.tensor([[[3.0, 4.0]]]), torch.tensor([[2.0]]))
    # The mean square of (3, 4) is 12.5; scale (2, 0), shift (0.25, 1), gate (4, 1).
    expected = torch.tensor([[[3 * 3 / 12.5**0.5 + 0.25, 4 / 12.5**0.5 + 1.0]]])
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(gate, torch.tensor([[[4.0, 1.0]]]))


def test_a_new_adaptive_norm_is_plain_with_a_closed_gate():
    out, gate = AdaRMSNorm(width=8, condition_width=4)(x := torch.randn(2, 3, 8), torch.randn(2, 4))
    torch.testing.assert_close(out, F.rms_norm(x, (8,), eps=1e-6))
    assert not gate.any()


def test_a_closed_gate_leaves_the_suffix_as_it_is():
    torch.manual_seed(0)
    model = build("pi05", "tiny")
    seen = []
    model.layers[0].register_forward_hook(lambda _layer, inputs, outputs: seen.append((inputs[1], outputs[1])))
    model(batch_of(model.shape))
    assert torch.equal(*seen[0])


@pytest.fixture(scope="module")
def model() -> Pi05:
    return tiny("pi05")


def test_loss_and_gradients_equal_a_dense_joint_transformer(model):
    batch, time = batch_of(model.shape), torch.tensor([0.3, 0.9])
    observation, noise = batch.observation, torch.randn_like(batch.actions)
    rotary = GemmaRotaryEmbedding(GemmaConfig(hidden_size=32, num_attention_heads=4, head_dim=8))
    point, velocity = noisy_actions(batch.actions, noise, time)
    condition = F.silu(model.time_mlp_out(F.silu(model.time_mlp_in(time_embedding(time, 32)))))
    starts = [0] * (model.tokens_per_sample() - 10) + [1] + [0] * 9
    found = dense_velocity(model, rotary, observation, model.action_in_proj(point), condition, starts)
    expected = F.mse_loss(found, velocity)
    loss = model.loss(observation, batch.actions, noise, time)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for mine, theirs in zip(torch.autograd.grad(loss, trained), torch.autograd.grad(expected, trained), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-6)


def test_the_state_is_not_read_and_time_is(model):
    batch = batch_of(model.shape)
    seen, noise = batch.observation, torch.randn_like(batch.actions)
    losses = [
        model.loss(type(seen)(**{**vars(seen), "state": state}), batch.actions, noise, torch.full((2,), time))
        for state, time in ((seen.state, 0.5), (seen.state + 1, 0.5), (seen.state, 0.6))
    ]
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])
