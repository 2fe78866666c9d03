"""Models by name and size. Torch and transformers are loaded at the first call, not at import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import BadInput

if TYPE_CHECKING:
    from harness.data.shape import InputShape
    from harness.models.base import VLA
    from harness.models.pi0 import Pi0Config


def build(model: str, size: str) -> VLA:
    """The model with fresh weights in float32 on the current default device.

    Weights are a function of torch's global seed, which the caller sets.

    Raises:
        BadInput: there is no such model or size.
    """
    from harness.models.pi0 import Pi0

    return Pi0(_config(model, size))


def input_shape(model: str, size: str) -> InputShape:
    """What that model wants to be fed. Raises BadInput as `build` does."""
    return _config(model, size).shape


def _config(model: str, size: str) -> Pi0Config:
    from harness.models.presets import PI0

    presets = {"pi0": PI0}
    if model not in presets:
        raise BadInput("models", "model", model, "a known model", presets)
    if size not in presets[model]:
        raise BadInput("models", "size", size, f"a size of {model}", presets[model])
    return presets[model][size]
