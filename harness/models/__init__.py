"""Models by name and size. Torch and transformers are loaded at the first call, not at import."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from harness.errors import BadInput

if TYPE_CHECKING:
    from harness.data.shape import InputShape
    from harness.models.base import VLA

MODELS = {
    "pi0": "harness.models.presets:pi0",
    "pi05": "harness.models.presets:pi05",
    "dm0": "harness.models.presets:dm0",
    "cogact": "harness.models.presets:cogact",
}
"""Name → the function that builds it from a size. A suite may name any such function of any package itself."""

RAW_LAYOUT = ("pi0", "pi05", "dm0")
"""Those of `MODELS` that have the layout `raw` (`CellSettings.layout`)."""

SIZES = ("full", "micro", "tiny")
"""What each of `MODELS` comes in: the published size, one that learns on a CPU, one for tests."""


def build(model: str, size: str, layout: str = "joint") -> VLA:
    """The model with fresh weights in float32 on the current default device.

    Weights are a function of torch's global seed, which the caller sets; they do not depend on the layout.

    Args:
        model: a key of `MODELS`, or "module:function".
        layout: `joint` or `raw` (`CellSettings.layout`).

    Raises:
        BadInput: there is no such model, size or layout, or the function returns something else than a `VLA`.
    """
    from harness.models.base import VLA

    built = _function(model)(size)
    if not isinstance(built, VLA):
        raise BadInput("models", "model", model, f"a function that returns a VLA, not {type(built).__name__}")
    if layout == "raw":
        built.use_raw_layout()
    return built


def build_on_meta(model: str, size: str, layout: str = "joint") -> VLA:
    """The model without weights: shapes, and whatever does not look at values. Raises BadInput as `build` does."""
    import torch

    with torch.device("meta"):
        return build(model, size, layout)


def input_shape(model: str, size: str) -> InputShape:
    """What that model wants to be fed, from a build on `meta`. Raises BadInput as `build` does."""
    return build_on_meta(model, size).shape


def names_function(model: str) -> bool:
    """Whether this is "module:function" rather than a name of ours."""
    return re.fullmatch(r"[\w.]+:\w+", model) is not None


def _function(model: str) -> Callable[[str], object]:
    if model not in MODELS and not names_function(model):
        raise BadInput("models", "model", model, "a known model, or module:function", MODELS)
    module_name, _, name = MODELS.get(model, model).partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise BadInput("models", "model", model, f"a module that can be imported, but: {error}") from None
    function = getattr(module, name, None)
    if not callable(function):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module_name]
        choices = [f"{module_name}:{key}" for key in own if not key.startswith("_")]
        raise BadInput("models", "model", model, f"a function of {module_name}", choices)
    return function
