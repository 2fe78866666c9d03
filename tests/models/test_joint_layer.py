"""The pieces of flow matching and the masks, against their definitions."""

import torch
from scipy import stats

from harness.models.joint import Rules, draw_times, layout, noisy_actions, rotary, time_embedding

RULES = Rules(state_tokens=1, action_tokens=2, head_dim=4, rope_base=10_000.0)


def test_times_are_beta_distributed():
    times = draw_times(4000, torch.Generator().manual_seed(0))
    assert times.dtype == torch.float32 and times.min() >= 0.001 and times.max() <= 1.0
    assert stats.kstest((times.numpy() - 0.001) / 0.999, stats.beta(1.5, 1).cdf).pvalue > 0.01


def test_the_path_runs_from_actions_to_noise_at_constant_velocity():
    actions, noise = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    start, velocity = noisy_actions(actions, noise, torch.zeros(2))
    end, _ = noisy_actions(actions, noise, torch.ones(2))
    assert torch.equal(start, actions) and torch.equal(end, noise)
    torch.testing.assert_close(start + velocity, end)


def test_who_sees_whom():
    valid = torch.tensor([[True, True, False], [True, True, True]])
    where = layout(valid, RULES, torch.float32)
    assert where.prefix_mask[0, 0].tolist() == [[True, True, False]] * 3
    assert where.suffix_mask[0, 0].tolist() == [
        [True, True, False, True, False, False],
        [True, True, False, True, True, True],
        [True, True, False, True, True, True],
    ]


def test_positions_skip_what_is_not_there():
    valid = torch.tensor([[True, False, True]])
    where = layout(valid, RULES, torch.float32)
    expected = rotary(torch.tensor([[0, 0, 1]]), 4, torch.float32, 10_000.0)
    torch.testing.assert_close(where.prefix_rotation, expected)
    torch.testing.assert_close(where.suffix_rotation, rotary(torch.tensor([[2, 3, 4]]), 4, torch.float32, 10_000.0))


def test_time_embedding_spans_its_periods():
    embedded = time_embedding(torch.tensor([0.004, 4.0]), 8)
    assert embedded.shape == (2, 8)
    torch.testing.assert_close(embedded[0, [0, 4]], torch.tensor([0.0, 1.0]), atol=1e-4, rtol=0)
    torch.testing.assert_close(embedded[1, [3, 7]], torch.tensor([0.0, 1.0]), atol=1e-4, rtol=0)
