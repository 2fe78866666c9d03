"""Which shapes a camera cannot see: leaving them out saves a software renderer their vertices, and changes no pixel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN_GROUP = 5
"""A geom group that robosuite's renderer never draws."""
_MARGIN_M = 1e-3


def out_of_view(model: Any, data: Any, camera: int) -> NDArray[np.bool_]:
    """Geoms whose bounding sphere lies wholly outside a camera's field of view: bool (ngeom,).

    Cautious: a sphere that touches an edge, or has no size (planes), counts as seen. Images must be square.

    Args:
        model, data: MuJoCo's, after a forward pass.
        camera: its number.
    """
    half_angle = np.deg2rad(model.cam_fovy[camera]) / 2
    right, up, backwards = ((data.geom_xpos - data.cam_xpos[camera]) @ data.cam_xmat[camera].reshape(3, 3)).T
    radius = model.geom_rbound + _MARGIN_M
    sideways = np.maximum(np.abs(right), np.abs(up))
    beyond_an_edge = sideways * np.cos(half_angle) + backwards * np.sin(half_angle) > radius
    return np.asarray((model.geom_rbound > 0) & ((backwards > radius) | beyond_an_edge))


@contextmanager
def without(model: Any, hidden: NDArray[np.bool_]) -> Iterator[None]:
    """Inside, the renderer skips the hidden geoms."""
    groups = model.geom_group.copy()
    model.geom_group[hidden] = HIDDEN_GROUP
    try:
        yield
    finally:
        model.geom_group[:] = groups
