"""What all tests of models share."""

from functools import cache

import pytest
import torch

from harness.models import build


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # tensors this small are slower on more, and far slower on a busy machine
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def full():
    """Model name → the published model on `meta`, built once."""

    @cache
    def built(model: str):
        with torch.device("meta"):
            return build(model, "full")

    return built
