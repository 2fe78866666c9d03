"""Is this machine fit to run LIBERO? Checks of its physics and its pictures, apart from this process: a bad driver can
only kill that one.

`python -m harness.libero.probe NAME` runs one check here and prints it as JSON.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
from numpy.typing import NDArray

from harness.errors import MachineFault
from harness.libero.worker import ONE_THREAD
from harness.records import Value

SETTLED_OFFSET_M = (0.010, 0.020)
"""Horizontal bowl-to-ramekin offset after settling, libero_spatial task 5: 1.45 cm on MuJoCo 3.3.2, 6.2 cm on 3.17,
whose box contacts let the bowl slide off (published: 98 % to 12 % success on that task)."""

# fmt: off
REFERENCE_GREYS = (
    109.0, 114.0, 107.4, 107.7,
    124.4, 110.4,  84.0,  67.2,
    160.6, 143.1, 124.5,  27.9,
    174.5, 170.3, 169.3, 125.3,
)
# fmt: on
"""The settled scene of that task, coarsely: the mean grey (0 to 255) of each of 4 × 4 blocks of the upright agentview
image of 128 × 128 pixels, row by row. MuJoCo 3.3.2, Mesa's llvmpipe."""

LARGEST_DIFFERENCE = 6.0
"""Of any block. Upside down one is 65 off, a tenth darker 18; MuJoCo 3.3.3 on the same renderer 0.6. No other renderer
has been seen yet."""

REFERENCE_SHA256 = {
    "llvmpipe (LLVM 15.0.6, 256 bits)": "79e4f16173c57bff50430aad104c1eb6c1214bd6b741516694d3fd6a3d48188f",
}
"""Of all pixels of that image, by OpenGL renderer: what a policy does pairs exactly only where all of them agree."""

_GL_TIMEOUT_SECONDS = 120.0
_SCENE_TIMEOUT_SECONDS = 600.0


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


def check_machine() -> list[Check]:
    """All checks, cheapest first; those that would need an earlier one that failed are left out."""
    checks = [check_mujoco()]
    if checks[-1].ok:
        checks += check_gl()
    if checks[-1].ok:
        checks += check_scene()
    return checks


def check_mujoco() -> Check:
    """MuJoCo's version, without importing it."""
    from harness.libero.scene import check_mujoco_version

    try:
        return Check(name="mujoco", ok=True, detail=f"MuJoCo {check_mujoco_version()}")
    except MachineFault as fault:
        return Check(name="mujoco", ok=False, detail=str(fault), mend="pip install 'mujoco==3.3.2'")


def check_gl() -> list[Check]:
    """Off-screen rendering: starts a context, renders a white box, and names vendor and renderer."""
    return _apart("gl", _GL_TIMEOUT_SECONDS)


def check_scene() -> list[Check]:
    """The physics, a bowl on a ramekin must stay there; and its picture, which must be the reference's. A scene is
    compiled for it (about 10 s)."""
    return _apart("scene", _SCENE_TIMEOUT_SECONDS)


def _apart(name: str, timeout_seconds: float) -> list[Check]:
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
        return [Check(name=name, ok=False, detail=f"no answer within {timeout_seconds:.0f} s", mend=gl_mend())]
    found = [Check.model_validate_json(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not found:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return [Check(name=name, ok=False, detail=f"the check died ({done.returncode}): {last}", mend=gl_mend())]
    return found


def _gl_here() -> list[Check]:
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
        return [Check(name="gl", ok=False, detail=f"{type(error).__name__}: {error}", mend=gl_mend())]
    detail = f"{backend}: {vendor.decode()}, {name.decode()}"
    if not np.any(image):
        return [Check(name="gl", ok=False, detail=f"{detail} renders black", mend=gl_mend())]
    return [Check(name="gl", ok=True, detail=detail)]


def _scene_here() -> list[Check]:
    from harness.libero.protocol import preset
    from harness.libero.scene import Scene
    from harness.libero.tasks import task
    from harness.plan import EpisodeKey

    scene = Scene(task("libero_spatial", 5), preset("micro"))
    start = scene.reset(EpisodeKey(task_suite="libero_spatial", task=5, initial_state=0, seed=0), look=True)
    bowl, ramekin = scene.world.position("akita_black_bowl_1"), scene.world.position("glazed_rim_porcelain_ramekin_1")
    _, renderer = scene.gl_strings()
    scene.close()
    offset_m = float(np.linalg.norm((bowl - ramekin)[:2]))
    return [settling(offset_m), picture(start.observation.images["agentview"], renderer)]


def settling(offset_m: float) -> Check:
    """Of the bowl's horizontal offset from the ramekin's middle."""
    low, high = SETTLED_OFFSET_M
    detail = (
        f"bowl on ramekin settles {100 * offset_m:.2f} cm off its middle (expected {100 * low:.1f} to {100 * high:.1f})"
    )
    if low <= offset_m <= high:
        return Check(name="settling", ok=True, detail=detail)
    return Check(name="settling", ok=False, detail=detail, mend="pip install 'mujoco==3.3.2'")


def blocks(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Mean grey of each of 4 × 4 blocks of an image uint8 (128, 128, 3), row by row: float64 (16,)."""
    return image.reshape(4, 32, 4, 32, 3).mean(axis=(1, 3, 4)).ravel()


def picture(image: NDArray[np.uint8], renderer: str) -> Check:
    """Of the settled scene's agentview image, uint8 (128, 128, 3), and the OpenGL renderer that made it."""
    furthest = float(np.abs(blocks(image) - np.array(REFERENCE_GREYS)).max())
    if furthest > LARGEST_DIFFERENCE:
        detail = f"{renderer}: a part of the picture is {furthest:.0f} of 255 greys off the reference"
        mend = "pip install 'mujoco==3.3.2', or another OpenGL driver"
        return Check(name="picture", ok=False, detail=detail, mend=mend)
    found = hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()
    reference = REFERENCE_SHA256.get(renderer)
    if reference is None:
        known = f"pixels {found[:12]}, and no reference for this renderer"
    elif found == reference:
        known = "every pixel as in this renderer's reference"
    else:
        known = f"pixels {found[:12]}, this renderer's reference {reference[:12]}"
    return Check(name="picture", ok=True, detail=f"{renderer}: {furthest:.1f} of 255 greys off at most; {known}")


def main() -> None:
    for check in {"gl": _gl_here, "scene": _scene_here}[sys.argv[1]]():
        print(check.model_dump_json())


if __name__ == "__main__":
    main()
