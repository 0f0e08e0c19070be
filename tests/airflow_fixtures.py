"""Fixtures of the tiers that need Airflow: a real one on SQLite, in a home of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import airflow_setting


@pytest.fixture(scope="session")
def airflow_database() -> None:
    airflow_setting.make_database()


@pytest.fixture(scope="module")
def dags_folder() -> Iterator[Path]:
    """Airflow's DAG folder, emptied after each module: ``dag.test()`` parses everything in it."""
    yield airflow_setting.DAGS
    for path in airflow_setting.DAGS.glob("*.py"):
        path.unlink()
