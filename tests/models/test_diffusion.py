"""The schedule and the sampler against diffusers' published definition."""

import pytest
import torch

from harness.models.diffusion import ddim, guided, noisy, signal_shares

SHARES = {
    0: 0.9993687272071838,
    1: 0.9982525110244751,
    10: 0.9667166471481323,
    50: 0.47826457023620605,
    90: 0.01954437419772148,
    98: 0.00024285720428451896,
    99: 2.4285407107527135e-07,
}
"""`alphas_cumprod` of diffusers 0.42.1's DDIMScheduler(100, beta_schedule="squaredcos_cap_v2")."""
START = [1.0, -0.5, 2.0]
SAMPLED = [0.09540816396474838, -5.172430515289307, 3.6073012351989746]
"""START after 10 steps of the same scheduler (timestep_spacing="leading", set_alpha_to_one=True, clip_sample=False,
eta=0) when the predicted noise is 0.3·x + 0.01·t."""


def test_the_schedule_is_that_of_diffusers():
    shares = signal_shares(100)
    assert shares.shape == (100,) and shares.dtype == torch.float32
    for step, share in SHARES.items():
        assert shares[step].item() == pytest.approx(share, rel=5e-5), step  # theirs is of float32 betas


def test_ddim_is_that_of_diffusers():
    seen = []

    def predict(point: torch.Tensor, step: int) -> torch.Tensor:
        seen.append(step)
        return 0.3 * point + 0.01 * step

    sampled = ddim(predict, torch.tensor(START).reshape(1, 3, 1), 100, 10)
    assert sampled.flatten().tolist() == pytest.approx(SAMPLED, abs=5e-6)
    assert seen == [90, 80, 70, 60, 50, 40, 30, 20, 10, 0]


def test_ddim_finds_the_actions_when_the_noise_is_known():
    actions, noise = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    share = signal_shares(100)[90]
    start = noisy(actions, noise, share.repeat(2))
    found = ddim(lambda point, step: noise, start, 100, 10)
    torch.testing.assert_close(found, actions, atol=1e-4, rtol=0)


def test_noisy_mixes_by_share():
    actions, noise = torch.full((1, 1, 1), 1.0), torch.full((1, 1, 1), 2.0)
    mixed = noisy(actions, noise, signal_shares(100)[[50]])
    assert mixed.item() == pytest.approx(2.1361918449401855)  # diffusers' `add_noise`


def test_guidance_goes_past_the_conditional_prediction():
    conditional, unconditional = torch.tensor([3.0]), torch.tensor([1.0])
    assert guided(conditional, unconditional, 1.0).item() == 3.0
    assert guided(conditional, unconditional, 1.5).item() == 4.0


def test_the_schedule_holds_numbers_wherever_it_was_first_asked_for():
    """A run counts its operations on `meta` before it trains."""
    signal_shares.cache_clear()
    with torch.device("meta"):
        signal_shares(100)
    assert signal_shares(100).device.type == "cpu"
