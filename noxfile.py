"""Every way to run the project's own checks and its main job. `nox -l` lists them."""

from __future__ import annotations

import shutil
import subprocess
from ctypes.util import find_library
from pathlib import Path

import nox

nox.options.sessions = ["lint", "tests"]
nox.options.error_on_missing_interpreters = True

GL_PACKAGES = "libegl1 libgl1 libgles2 libegl-mesa0 libgl1-mesa-dri"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
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


def need_browser(session: nox.Session) -> None:
    if not any(shutil.which(name) for name in BROWSERS):
        session.error("the tests read the HTML page in a browser: apt-get install chromium fonts-dejavu-core")


@nox.session
def lint(session: nox.Session) -> None:
    """ruff and mypy (strict on harness/)."""
    install(session, "lint", "test")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """The tests: real torchrun, real DeepSpeed, real simulation. About a quarter of an hour on 2 cores."""
    need_gl(session)
    need_browser(session)
    install(session, "test")
    session.run("pytest", "-m", "not full", *session.posargs)


@nox.session(name="tests-full")
def tests_full(session: nox.Session) -> None:
    """The longer tests too."""
    need_gl(session)
    need_browser(session)
    install(session, "test")
    session.install("--quiet", "-c", "constraints.txt", "ray")
    session.run("pytest", *session.posargs)


@nox.session
def smoke(session: nox.Session) -> None:
    """The whole path at its smallest: demonstrations, training, evaluation, report. At most six minutes."""
    need_gl(session)
    install(session)
    session.run("harness", "run", "suites/smoke.toml", *session.posargs, success_codes=DONE)


@nox.session(name="bench-fsdp2")
def bench_fsdp2(session: nox.Session) -> None:
    """The main job: DeepSpeed against FSDP2, trained and evaluated in LIBERO. 15 to 30 minutes on 2 cores."""
    need_gl(session)
    install(session)
    session.run("harness", "run", "suites/fsdp2.toml", *session.posargs, success_codes=DONE)


@nox.session
def gate(session: nox.Session) -> None:
    """The nightly check; its exit code is the verdict's (10 regressed, 11 not shown, 12 a run failed)."""
    need_gl(session)
    install(session)
    # `session.run` tells success from failure and no more, and nox makes every failure a 1.
    arguments = session.posargs or ["suites/gate.toml"]
    raise SystemExit(subprocess.call([str(Path(session.bin) / "harness"), "gate", *arguments]))


@nox.session(name="tests-transformers4")
def tests_transformers4(session: nox.Session) -> None:
    """The trainer stack on transformers 4.57.6, where accelerate's plugin reads the environment."""
    install(session, "test")
    session.install("--quiet", "transformers==4.57.6", "huggingface_hub<1", "tokenizers>=0.22,<=0.23")
    picked = ["-m", "not full", "-k", "trainer-ddp or trainer-fsdp"]
    session.run("pytest", "tests/train/test_stacks.py", *picked, *session.posargs)


@nox.session(name="tests-oldest")
def tests_oldest(session: nox.Session) -> None:
    """The backends on the oldest torch."""
    session.install("--quiet", "pip", "setuptools", "wheel", "torch==2.6.0")
    wanted = nox.project.dependency_groups(PROJECT, "test")
    session.install("--quiet", "--no-build-isolation", "-e", ".", *wanted, env={"DS_BUILD_OPS": "0"})
    # Collectives on `meta` came later: nothing is simulated here.
    picked = ["-m", "not full", "-k", "not simulated"]
    session.run("pytest", "tests/backends", "tests/train/test_stacks.py", *picked, *session.posargs)


@nox.session
def clusters(session: nox.Session) -> None:
    """Two hosts made of network namespaces, one cut off; jobs killed and queued again. Needs root and `ip`."""
    install(session, "test")
    session.run("pytest", "tests/cluster", *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """Every figure that needs a GPU, within 8 minutes; prints the table and writes one JSON."""
    install(session)
    session.run("python", "benchmarks/gpu.py", *session.posargs)


@nox.session(name="published-clients")
def published_clients(session: nox.Session) -> None:
    """Our server under openpi's published client, our client under vla-eval's server; each in its own environment."""
    install(session, "test")
    peers = {
        "HARNESS_OPENPI_PYTHON": ["openpi-client", "typing_extensions"],
        "HARNESS_VLA_EVAL_PYTHON": ["vla-eval"],
    }
    environments = {name: peer(session, name, *packages) for name, packages in peers.items()}
    session.run("pytest", "tests/policies/test_published_clients.py", env=environments)


@nox.session(name="peer-lerobot")
def peer_lerobot(session: nox.Session) -> None:
    """LeRobot 0.4.4 reads our data sets and weights and we read its; in an environment of its own, outside CI."""
    install(session, "test")
    python = peer(session, "lerobot", "torch<2.11", "torchvision", "lerobot==0.4.4", "transformers==4.53.3")
    files = ["tests/data/test_lerobot_writer.py", "tests/models/test_lerobot_weights.py"]
    session.run("pytest", *files, "-k", "lerobot_", env={"HARNESS_LEROBOT_PYTHON": python})


def peer(session: nox.Session, name: str, *packages: str) -> str:
    """Another program's own environment; its interpreter."""
    folder = Path(session.create_tmp()).resolve() / name
    session.run("python", "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    session.run(python, "-m", "pip", "install", "--quiet", *packages, external=True)
    return python
