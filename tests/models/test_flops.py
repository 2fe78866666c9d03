"""Operations by formula and by PyTorch's counter."""

import pytest
import torch

from harness.models import build
from harness.models.flops import attention, convolution, count, encoder_layer, linear

PUBLISHED = {"pi0": 11.54e12, "pi05": 13.37e12, "dm0": 27.03e12}
"""Forward and backward of one sample at full size: pi0 and pi05 with 50 actions, pi05 and dm0 with 200 text slots."""


def test_parts_against_sums_done_by_hand():
    assert linear(tokens=3, inputs=4, outputs=5) == 2 * 60
    assert convolution(positions=9, inputs=2, outputs=5, kernel=3) == 2 * 9 * 90
    # Scores: 2 heads × 3 queries × 5 keys × 7 multiply-adds; the weighted sum takes as many.
    assert attention(heads=2, head_dim=7, queries=3, keys=5) == 2 * 2 * 210
    assert encoder_layer(tokens=3, width=4, ffn=8) == 2 * 3 * (4 * 16 + 2 * 32) + 4 * 4 * 9


@pytest.mark.parametrize("model", PUBLISHED)
def test_counted_and_computed_operations_agree_at_full_size(full, model):
    built = full(model)
    counted = count(built)
    assert built.forward_flops() == counted.forward
    assert 3 * built.forward_flops() == pytest.approx(counted.training, rel=1e-3)
    assert counted.training == pytest.approx(PUBLISHED[model], rel=5e-4)


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("size", ["tiny", "micro"])
def test_the_formula_holds_at_small_sizes(model, size):
    with torch.device("meta"):
        built = build(model, size)
    assert built.forward_flops() == count(built).forward
