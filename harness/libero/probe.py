"""Is this machine fit to run LIBERO? Three checks, each in a process of its own: a bad driver can only kill that.

`python -m harness.libero.probe NAME` runs one check here and prints it as JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from harness.errors import MachineFault
from harness.libero.worker import ONE_THREAD
from harness.records import Value

SETTLED_OFFSET_M = (0.010, 0.020)
"""Horizontal bowl-to-ramekin offset after settling, libero_spatial task 5: 1.45 cm on MuJoCo 3.3.2, 6.2 cm on 3.17,
whose box contacts let the bowl slide off (published: 98 % to 12 % success on that task)."""

_GL_TIMEOUT_SECONDS = 120.0
_SETTLE_TIMEOUT_SECONDS = 600.0


class Check(Value):
    """What one check found.

    Attributes:
        detail: what was found, in words.
        mend: what to do about it; None when all is well.
    """

    name: str
    ok: bool
    detail: str
    mend: str | None = None


def check_machine(*, settle: bool = True) -> list[Check]:
    """All checks, cheapest first; those that would need an earlier one that failed are left out.

    Args:
        settle: whether to run the settle probe too, which compiles a scene (about 10 s).
    """
    checks = [check_mujoco()]
    if checks[-1].ok:
        checks.append(check_gl())
    if checks[-1].ok and settle:
        checks.append(check_settling())
    return checks


def check_mujoco() -> Check:
    """MuJoCo's version, without importing it."""
    from harness.libero.scene import check_mujoco_version

    try:
        return Check(name="mujoco", ok=True, detail=f"MuJoCo {check_mujoco_version()}")
    except MachineFault as fault:
        return Check(name="mujoco", ok=False, detail=str(fault), mend="pip install 'mujoco==3.3.2'")


def check_gl() -> Check:
    """Off-screen rendering: starts a context, renders a white box, and names vendor and renderer."""
    return _apart("gl", _GL_TIMEOUT_SECONDS)


def check_settling() -> Check:
    """The physics: a bowl on a ramekin must stay there."""
    return _apart("settling", _SETTLE_TIMEOUT_SECONDS)


def _apart(name: str, timeout_seconds: float) -> Check:
    from harness.libero.scene import gl_mend

    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "harness.libero.probe", name],
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            env={**os.environ, **ONE_THREAD},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(name=name, ok=False, detail=f"no answer within {timeout_seconds:.0f} s", mend=gl_mend())
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Check(name=name, ok=False, detail=f"the check died ({done.returncode}): {last}", mend=gl_mend())
    return Check.model_validate_json(done.stdout.strip().splitlines()[-1])


def _gl_here() -> Check:
    from harness.libero.scene import choose_gl, gl_mend

    try:
        backend = choose_gl()
        import mujoco
        from OpenGL import GL

        model = mujoco.MjModel.from_xml_string(
            "<mujoco><worldbody><light pos='0 0 3'/><geom type='box' size='1 1 .1'/></worldbody></mujoco>"
        )
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        with mujoco.Renderer(model, 64, 64) as renderer:
            renderer.update_scene(data)
            image = renderer.render()
            vendor, name = (GL.glGetString(key) or b"unknown" for key in (GL.GL_VENDOR, GL.GL_RENDERER))
    except Exception as error:
        return Check(name="gl", ok=False, detail=f"{type(error).__name__}: {error}", mend=gl_mend())
    detail = f"{backend}: {vendor.decode()}, {name.decode()}"
    if not np.any(image):
        return Check(name="gl", ok=False, detail=f"{detail} renders black", mend=gl_mend())
    return Check(name="gl", ok=True, detail=detail)


def _settling_here() -> Check:
    from harness.libero.protocol import preset
    from harness.libero.scene import Scene
    from harness.libero.tasks import task
    from harness.plan import EpisodeKey

    scene = Scene(task("libero_spatial", 5), preset("micro"))
    scene.reset(EpisodeKey(task_suite="libero_spatial", task=5, initial_state=0, seed=0), look=False)
    bowl, ramekin = scene.world.position("akita_black_bowl_1"), scene.world.position("glazed_rim_porcelain_ramekin_1")
    scene.close()
    offset = float(np.linalg.norm((bowl - ramekin)[:2]))
    low, high = SETTLED_OFFSET_M
    detail = (
        f"bowl on ramekin settles {100 * offset:.2f} cm off its middle (expected {100 * low:.1f} to {100 * high:.1f})"
    )
    if low <= offset <= high:
        return Check(name="settling", ok=True, detail=detail)
    return Check(name="settling", ok=False, detail=detail, mend="pip install 'mujoco==3.3.2'")


def main() -> None:
    check = {"gl": _gl_here, "settling": _settling_here}[sys.argv[1]]()
    print(check.model_dump_json())


if __name__ == "__main__":
    main()
