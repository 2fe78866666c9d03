"""Every way to run the project's own checks and its main job. `nox -l` lists them."""

from __future__ import annotations

from ctypes.util import find_library

import nox

nox.options.sessions = ["lint", "tests"]
nox.options.error_on_missing_interpreters = True

GL_PACKAGES = "libegl1 libgl1 libgles2 libegl-mesa0 libgl1-mesa-dri"
DONE = [0, 11]
"""A benchmark is done when everything was shown (0) or something could not be (11: a newcomer has no baseline)."""


def install(session: nox.Session, *groups: str) -> None:
    """torch first: DeepSpeed looks at it while it is being installed; its operators are not built."""
    pinned = ["--quiet", "-c", "constraints.txt"]
    session.install(*pinned, "pip", "setuptools", "wheel", "torch")
    wanted = [part for group in groups for part in nox.project.dependency_groups(PROJECT, group)]
    session.install(*pinned, "--no-build-isolation", "-e", ".", *wanted, env={"DS_BUILD_OPS": "0"})


PROJECT = nox.project.load_toml("pyproject.toml")


def need_gl(session: nox.Session) -> None:
    if not (find_library("EGL") or find_library("OSMesa")):
        session.error(
            f"LIBERO's cameras need an OpenGL library: apt-get install {GL_PACKAGES}   (or libosmesa6 for OSMesa)"
        )


@nox.session
def lint(session: nox.Session) -> None:
    """ruff and mypy (strict on harness/)."""
    install(session, "lint", "test")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """The tests: real torchrun, real DeepSpeed, real simulation. About ten minutes on 2 cores."""
    need_gl(session)
    install(session, "test")
    session.run("pytest", "-m", "not full", *session.posargs)


@nox.session(name="tests-full")
def tests_full(session: nox.Session) -> None:
    """The longer tests too."""
    need_gl(session)
    install(session, "test")
    session.run("pytest", *session.posargs)


@nox.session
def smoke(session: nox.Session) -> None:
    """The whole path at its smallest: demonstrations, training, evaluation, report. At most six minutes."""
    need_gl(session)
    install(session)
    session.run("harness", "run", "suites/smoke.toml", *session.posargs, success_codes=DONE)


@nox.session(name="bench-fsdp2")
def bench_fsdp2(session: nox.Session) -> None:
    """The main job: DeepSpeed against FSDP2, trained and evaluated in LIBERO. About 25 minutes on 2 cores."""
    need_gl(session)
    install(session)
    session.run("harness", "run", "suites/fsdp2.toml", *session.posargs, success_codes=DONE)
