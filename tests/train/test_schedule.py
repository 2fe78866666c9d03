import pytest

from harness.suite import Optimizer
from harness.train.schedule import learning_rate


def rates(steps: int, **settings) -> list[float]:
    return [learning_rate(Optimizer(lr=1.0, **settings), step, steps) for step in range(steps)]


def test_constant():
    assert rates(4) == [1.0] * 4


def test_warmup_reaches_the_rate_at_its_last_step():
    assert rates(6, warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_starts_at_the_rate_and_ends_at_its_share():
    found = rates(11, schedule="cosine", final_lr_share=0.2)
    assert found[0] == 1.0
    assert found[5] == pytest.approx(0.6)
    assert found[-1] == pytest.approx(0.2)
    assert found == sorted(found, reverse=True)


def test_cosine_after_warmup():
    found = rates(13, schedule="cosine", warmup_steps=2, final_lr_share=0.0)
    assert found[:3] == [0.5, 1.0, 1.0]
    assert found[7] == pytest.approx(0.5)
    assert found[-1] == pytest.approx(0.0)


def test_training_shorter_than_warmup():
    assert rates(2, schedule="cosine", warmup_steps=4) == [0.25, 0.5]
