"""Real Airflow on SQLite, in a home of its own."""

import os
from pathlib import Path

import pytest

from tests.airflow_fixtures import airflow_database, dags_folder

__all__ = ["airflow_database", "dags_folder"]


@pytest.fixture(autouse=True)
def data_root_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data root for the test, unless a wider fixture has set one: a checkout has no folder ``data`` at first."""
    if "SKEWLESS_ROOT" not in os.environ:
        monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path / "data"))


@pytest.fixture(autouse=True)
def driver_memory_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks, which other tests import, set another one for their process."""
    monkeypatch.delenv("SKEWLESS_DRIVER_MEMORY", raising=False)
