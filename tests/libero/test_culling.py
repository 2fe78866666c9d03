"""What is called out of view must be; that no pixel changes is in test_scene.py."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.libero.culling import HIDDEN_GROUP, out_of_view, without

metres = st.floats(-2, 2)


def scene_of(positions, radii, angle_deg=45.0, camera_position=(0, 0, 0), rotation=None):
    rotation = np.eye(3) if rotation is None else rotation
    model = SimpleNamespace(
        cam_fovy=np.array([angle_deg]), geom_rbound=np.array(radii), geom_group=np.ones(len(radii), dtype=int)
    )
    data = SimpleNamespace(
        geom_xpos=np.array(positions, dtype=float).reshape(-1, 3),
        cam_xpos=np.array([camera_position], dtype=float),
        cam_xmat=rotation.reshape(1, 9),
    )
    return model, data


@given(st.tuples(metres, metres, metres), st.floats(0.01, 1), st.floats(10, 120), st.integers(0, 2**32 - 1))
def test_no_point_of_a_hidden_sphere_is_in_view(position, radius, angle_deg, seed):
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(3, 3)))
    model, data = scene_of([position], [radius], angle_deg, generator.normal(size=3), rotation)
    if not out_of_view(model, data, 0)[0]:
        return
    directions = generator.normal(size=(500, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    points = np.array(position) + radius * generator.uniform(0, 1, (500, 1)) ** (1 / 3) * directions
    local = (points - data.cam_xpos[0]) @ rotation
    edge = np.tan(np.deg2rad(angle_deg) / 2) * -local[:, 2]
    seen = (local[:, 2] < 0) & (np.abs(local[:, 0]) < edge) & (np.abs(local[:, 1]) < edge)
    assert not seen.any()


def test_what_is_ahead_stays_and_what_is_behind_or_beside_goes():
    model, data = scene_of([[0, 0, -1], [0, 0, 1], [2, 0, -1], [0, -2, -1], [0.5, 0, -1]], [0.1] * 5)
    assert out_of_view(model, data, 0).tolist() == [False, True, True, True, False]


def test_planes_have_no_bounds_and_are_always_drawn():
    model, data = scene_of([[0, 0, 5]], [0.0])
    assert not out_of_view(model, data, 0)[0]


def test_hiding_is_undone_also_after_a_fault():
    model, _ = scene_of([[0, 0, 1], [0, 0, -1]], [0.1, 0.1])
    try:
        with without(model, np.array([True, False])):
            assert model.geom_group.tolist() == [HIDDEN_GROUP, 1]
            raise RuntimeError
    except RuntimeError:
        pass
    assert model.geom_group.tolist() == [1, 1]
