"""What holds for all tests: their order, the examples of Hypothesis, and JVMs that are soon up."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

#: Folders by how long their longest file takes: two files run at a time, and the last one should be short.
LONGEST_FIRST = ("system", "cluster", "spark", "faults", "leases", "airflow", "benchmarks", "publication", "unit")

# The same examples every time; HYPOTHESIS_PROFILE=explore looks further.
settings.register_profile("fixed", derandomize=True, max_examples=30, deadline=None, database=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# Each JVM lives for seconds or minutes: what counts is how soon it is up, not how fast its code is in the end.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by their folders, the longest first."""
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.parent.name))
