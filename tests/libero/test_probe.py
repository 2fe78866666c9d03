import numpy as np
import pytest

from harness.libero import probe
from harness.libero.probe import REFERENCE_GREYS, blocks, check_gl, check_machine, check_mujoco, check_scene, picture


def reference_image():
    """Like the reference in every block, and in nothing else."""
    greys = np.array(REFERENCE_GREYS).reshape(4, 4).repeat(32, axis=0).repeat(32, axis=1)
    return np.repeat(np.rint(greys).astype(np.uint8)[..., None], 3, axis=2)


def test_this_machine_s_mujoco_and_opengl_are_fit():
    assert check_mujoco().ok
    (found,) = check_gl()
    assert found.ok, found.detail
    assert found.mend is None


def test_this_machine_s_scene_settles_and_looks_as_the_reference():
    settling, seen = check_scene()
    assert settling.ok, settling.detail
    assert seen.ok, seen.detail


@pytest.mark.parametrize(
    "wrong",
    [
        lambda seen: seen[::-1],
        lambda seen: seen[:, ::-1],
        lambda seen: seen * 0,
        lambda seen: (seen * 0.9).astype("u1"),
    ],
    ids=["upside down", "mirrored", "black", "darker"],
)
def test_a_wrong_picture_is_not_fit(wrong):
    good = reference_image()
    assert picture(good, "somebody's").ok
    found = picture(wrong(good), "somebody's")
    assert not found.ok
    assert "somebody's" in found.detail
    assert "mujoco==3.3.2" in found.mend


def test_pixels_are_compared_where_the_renderer_is_known(monkeypatch):
    image = reference_image()
    assert "no reference for this renderer" in picture(image, "new").detail
    unknown = picture(image, "new").detail.partition("pixels ")[2][:12]
    monkeypatch.setattr(probe, "REFERENCE_SHA256", {"old": unknown + "0" * 52})
    assert f"this renderer's reference {unknown}" in picture(image, "old").detail
    one = image.copy()
    one[0, 0, 0] += 1
    assert picture(one, "old").ok
    assert unknown not in picture(one, "old").detail.partition(", this")[0]


def test_blocks_are_means_row_by_row():
    image = np.zeros((128, 128, 3), np.uint8)
    image[32:64, 64:96] = 200
    assert list(blocks(image)) == [200.0 if place == 6 else 0.0 for place in range(16)]


def test_a_failed_check_says_how_to_mend_it(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "3.9.0")
    (only,) = check_machine()
    assert not only.ok
    assert "3.9.0" in only.detail
    assert "mujoco==3.3.2" in only.mend


def test_a_check_that_dies_is_a_finding_and_no_crash(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    monkeypatch.setenv("PYOPENGL_PLATFORM", "nothing")
    (found,) = probe._apart("gl", 60)
    assert not found.ok
    assert found.mend
