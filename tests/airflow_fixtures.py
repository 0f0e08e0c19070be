"""Fixtures of the tiers that need Airflow: a real one on SQLite, in a home of its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import airflow_setting


@pytest.fixture(scope="session")
def airflow_database(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    # The folders of the workers are side by side in that of the session.
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    airflow_setting.make_database(shared / "airflow-tables.db")


@pytest.fixture(scope="module")
def dags_folder() -> Iterator[Path]:
    """Airflow's DAG folder, emptied after each module: ``dag.test()`` parses everything in it."""
    yield airflow_setting.DAGS
    for path in airflow_setting.DAGS.glob("*.py"):
        path.unlink()
