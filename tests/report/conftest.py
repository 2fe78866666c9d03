"""A real result, readable by the tests here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

REAL = Path(__file__).parent / "real" / "results"
"""Two real results of suites/fsdp2.toml on two cores; host and kernel are changed."""


@pytest.fixture(scope="session")
def real_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that may be written to."""
    return Path(shutil.copytree(REAL, tmp_path_factory.mktemp("real") / "results"))


@pytest.fixture(scope="session")
def real(real_results: Path):  # type: ignore[no-untyped-def]
    """The older of the two as a dossier, compared without a baseline."""
    from harness.compare.comparison import compare
    from harness.compare.published import load_published
    from harness.history import read_history
    from harness.reading import read_plan, read_results
    from harness.report.dossier import gather
    from harness.store import Store

    store = Store(real_results)
    folder = store.find("20261130-020957-9b0616")
    plan = read_plan(folder)
    results = read_results(folder, plan)
    past = read_history(store, plan.suite, episodes=False)
    return gather(compare(plan, results, None, load_published()), plan, results, folder, past)
