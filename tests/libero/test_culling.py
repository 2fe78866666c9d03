"""What is called out of view must be; that no pixel of LIBERO's scenes changes is in test_scene.py."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.libero.culling import HIDDEN_GROUP, out_of_view, without
from harness.libero.scene import choose_gl

metres = st.floats(-2, 2)


def scene_of(positions, radii, angle_deg=45.0, camera_position=(0, 0, 0), rotation=None):
    rotation = np.eye(3) if rotation is None else rotation
    model = SimpleNamespace(
        cam_fovy=np.array([angle_deg]),
        geom_rbound=np.array(radii),
        geom_group=np.ones(len(radii), dtype=int),
        geom_matid=np.full(len(radii), -1),
        geom_type=np.full(len(radii), 2),
        mat_reflectance=np.zeros(0),
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


MIRROR_ROOM = """
<mujoco>
  <asset>
    <material name="mirror" reflectance="0.6" rgba="0.3 0.3 0.3 1"/>
    <material name="dull" rgba="0.8 0.5 0.2 1"/>
  </asset>
  <worldbody>
    <light pos="0 0 4" castshadow="false"/>
    {first}
    <geom name="stove" type="box" size="0.4 0.3 0.1" pos="0 0 0.1" euler="10 20 30" material="mirror"/>
    {things}
    {cameras}
  </worldbody>
</mujoco>
"""


ANOTHER_MIRROR = '<geom type="box" size="0.3 0.3 0.1" pos="1.5 0 0.6" material="mirror"/>'


@pytest.mark.parametrize("first", ["", ANOTHER_MIRROR], ids=["one mirror", "two, of which the first reflects"])
def test_no_pixel_changes_where_there_is_a_mirror(first):
    """Things all around, and cameras above a box that may reflect: some see things in it alone."""
    choose_gl()
    import mujoco

    generator, cameras = np.random.default_rng(3), 24
    things = "".join(
        f'<geom type="box" size="0.2 0.3 0.1" pos="{x} {y} {z}" material="dull"/>'
        for x, y, z in generator.uniform([-2, -2, 0.6], [2, 2, 2.5], size=(30, 3))
    )
    looks = "".join(
        f'<camera name="{number}" pos="{x} {y} {z}" euler="{pitch} {roll} 0" fovy="50"/>'
        for number, (x, y, z, pitch, roll) in enumerate(
            generator.uniform([-0.3, -0.3, 0.5, -40, -40], [0.3, 0.3, 1, 40, 40], size=(cameras, 5))
        )
    )
    model = mujoco.MjModel.from_xml_string(MIRROR_ROOM.format(first=first, things=things, cameras=looks))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    blind_to_mirrors = SimpleNamespace(
        cam_fovy=model.cam_fovy, geom_rbound=model.geom_rbound, geom_matid=np.full(model.ngeom, -1),
        geom_type=model.geom_type, mat_reflectance=model.mat_reflectance,
    )  # fmt: skip
    wrong = 0
    with mujoco.Renderer(model, 96, 96) as renderer:

        def image(camera):
            renderer.update_scene(data, str(camera))
            return renderer.render()

        for camera in range(cameras):
            seen, hidden = image(camera), out_of_view(model, data, camera)
            assert hidden.any()
            with without(model, hidden):
                assert np.array_equal(image(camera), seen)
            careless = out_of_view(blind_to_mirrors, data, camera)
            if first:  # only with the first mirror, so that the second takes its place
                careless = hidden | (careless & (np.arange(model.ngeom) == 0))
            with without(model, careless):
                wrong += not np.array_equal(image(camera), seen)
    assert wrong >= 3
