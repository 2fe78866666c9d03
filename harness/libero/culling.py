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

    Directly: the bounding sphere lies wholly outside the field of view. In a mirror: so does its image in every mirror.
    Cautious: a sphere that touches an edge, or has no size (planes), counts as seen, and so does what a mirror that is
    itself out of view would show. Images must be square.

    Mirrors are as MuJoCo's `render_gl3.c` has them: the first plane or box that reflects shows the scene mirrored at
    its upper side, and the others reflect nothing. So they are left out together or not at all, lest another take the
    first one's place. LIBERO's stove is one.

    Args:
        model, data: MuJoCo's, after a forward pass.
        camera: its number.
    """
    places, mirrors = data.geom_xpos, _mirrors(model)
    hidden = (model.geom_rbound > 0) & _outside(model, data, camera, places)
    for mirror in mirrors:
        normal = data.geom_xmat[mirror].reshape(3, 3)[:, 2]
        height = model.geom_size[mirror, 2] if model.geom_type[mirror] == _BOX else 0.0
        beyond = (places - data.geom_xpos[mirror]) @ normal - height
        hidden &= _outside(model, data, camera, places - 2 * np.outer(beyond, normal))
    if not hidden[mirrors].all():
        hidden[mirrors] = False
    return np.asarray(hidden)


def _mirrors(model: Any) -> NDArray[np.intp]:
    """Numbers of the planes and boxes whose material reflects."""
    reflectance = np.append(model.mat_reflectance, 0.0)[model.geom_matid]  # no material is -1, the last
    return np.flatnonzero((reflectance > 0) & np.isin(model.geom_type, (_PLANE, _BOX)))


def _outside(model: Any, data: Any, camera: int, places: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Spheres of the geoms' sizes, at these places (ngeom, 3), that lie wholly outside the field of view."""
    half_angle = np.deg2rad(model.cam_fovy[camera]) / 2
    right, up, backwards = ((places - data.cam_xpos[camera]) @ data.cam_xmat[camera].reshape(3, 3)).T
    radius = model.geom_rbound + _MARGIN_M
    sideways = np.maximum(np.abs(right), np.abs(up))
    beyond_an_edge = sideways * np.cos(half_angle) + backwards * np.sin(half_angle) > radius
    return np.asarray((backwards > radius) | beyond_an_edge)


@contextmanager
def without(model: Any, hidden: NDArray[np.bool_]) -> Iterator[None]:
    """Inside, the renderer skips the hidden geoms."""
    groups = model.geom_group.copy()
    model.geom_group[hidden] = HIDDEN_GROUP
    try:
        yield
    finally:
        model.geom_group[:] = groups
