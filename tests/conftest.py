"""What holds for all tests: their order, the examples of Hypothesis, JVMs that are soon up, and the shared Airflow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import spark_classes

if TYPE_CHECKING:
    from tests.served_airflow import ServedAirflow

#: Folders by how long their longest file takes: two files run at a time, and the last one should be short.
LONGEST_FIRST = (
    "system", "cluster", "spark", "faults", "leases", "airflow", "lake", "peers", "differential", "benchmarks",
    "publication", "unit",
)  # fmt: skip

# The same examples every time; HYPOTHESIS_PROFILE=explore looks further.
settings.register_profile("fixed", derandomize=True, max_examples=15, deadline=None, database=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_classes.options())
os.environ.setdefault("SKEWLESS_CLASS_ARCHIVE", "off")  # tests leave the user's cache alone


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by their folders, the longest first."""
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.parent.name))


# Here and not in the tiers: imported into two of them it would be two fixtures.
@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedAirflow]:
    """A whole Airflow, shared by all tests of the session and by its workers."""
    from tests.served_airflow import shared_airflow

    folder = tmp_path_factory.getbasetemp()
    # The folders of the workers are side by side in that of the session.
    with shared_airflow((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "served") as airflow:
        yield airflow
