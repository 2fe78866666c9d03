from harness.libero import probe
from harness.libero.probe import check_gl, check_machine, check_mujoco


def test_this_machine_s_mujoco_and_opengl_are_fit():
    assert check_mujoco().ok
    found = check_gl()
    assert found.ok, found.detail
    assert found.mend is None


def test_a_failed_check_says_how_to_mend_it(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "3.9.0")
    (only,) = check_machine()
    assert not only.ok
    assert "3.9.0" in only.detail
    assert "mujoco==3.3.2" in only.mend


def test_a_check_that_dies_is_a_finding_and_no_crash(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    monkeypatch.setenv("PYOPENGL_PLATFORM", "nothing")
    found = probe._apart("gl", 60)
    assert not found.ok
    assert found.mend
