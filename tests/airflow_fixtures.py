"""Fixtures of the tiers that need Airflow: a real one on SQLite, in a home of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import airflow_setting
from tests.served_airflow import ServedAirflow, served_airflow, with_packages
from tests.spark.clusters import install_paced


@pytest.fixture(scope="session")
def airflow_database() -> None:
    """Airflow's tables exist."""
    airflow_setting.make_database()


@pytest.fixture(scope="module")
def dags_folder() -> Iterator[Path]:
    """Airflow's DAG folder, emptied after each module: ``dag.test()`` parses everything in it."""
    yield airflow_setting.DAGS
    for path in airflow_setting.DAGS.glob("*.py"):
        path.unlink()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedAirflow]:
    """A whole Airflow, shared by all tests of the session."""
    folder = tmp_path_factory.mktemp("served")
    settings = {"PYTHONPATH": with_packages(install_paced(folder / "packages")), "PACE_ROW_SECONDS": "0.006"}
    with served_airflow(folder, settings) as airflow:
        yield airflow
