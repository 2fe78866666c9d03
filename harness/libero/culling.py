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
_PLANE, _BOX = 0, 6
"""`mjtGeom`."""


def out_of_view(model: Any, data: Any, camera: int) -> NDArray[np.bool_]:
    """Geoms of which a camera sees nothing, directly or in a mirror: bool (ngeom,).

    Directly: the bounding sphere lies wholly outside the field of view. In a mirror: so does its image in every plane
    or box that reflects; MuJoCo draws the scene once more for each, mirrored at its upper side. LIBERO's stove is
    one. Cautious: a sphere that touches an edge, or has no size (planes), counts as seen, and so does what a mirror
    that is itself out of view would show. Images must be square.

    Args:
        model, data: MuJoCo's, after a forward pass.
        camera: its number.
    """
    places = data.geom_xpos
    hidden = (model.geom_rbound > 0) & _outside(model, data, camera, places)
    for point, normal in _mirrors(model, data):
        beyond = (places - point) @ normal
        hidden &= _outside(model, data, camera, places - 2 * np.outer(beyond, normal))
    return np.asarray(hidden)


def _outside(model: Any, data: Any, camera: int, places: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Spheres of the geoms' sizes, at these places (ngeom, 3), that lie wholly outside the field of view."""
    half_angle = np.deg2rad(model.cam_fovy[camera]) / 2
    right, up, backwards = ((places - data.cam_xpos[camera]) @ data.cam_xmat[camera].reshape(3, 3)).T
    radius = model.geom_rbound + _MARGIN_M
    sideways = np.maximum(np.abs(right), np.abs(up))
    beyond_an_edge = sideways * np.cos(half_angle) + backwards * np.sin(half_angle) > radius
    return np.asarray((backwards > radius) | beyond_an_edge)


def _mirrors(model: Any, data: Any) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """A point and the normal of each mirror (`render_gl3.c` of MuJoCo: planes, and boxes at their upper side)."""
    reflects = (model.geom_matid >= 0) & np.append(model.mat_reflectance, 0.0)[model.geom_matid].astype(bool)
    for geom in np.flatnonzero(reflects & np.isin(model.geom_type, (_PLANE, _BOX))):
        normal = data.geom_xmat[geom].reshape(3, 3)[:, 2]
        height = model.geom_size[geom, 2] if model.geom_type[geom] == _BOX else 0.0
        yield data.geom_xpos[geom] + height * normal, normal


@contextmanager
def without(model: Any, hidden: NDArray[np.bool_]) -> Iterator[None]:
    """Inside, the renderer skips the hidden geoms."""
    groups = model.geom_group.copy()
    model.geom_group[hidden] = HIDDEN_GROUP
    try:
        yield
    finally:
        model.geom_group[:] = groups
