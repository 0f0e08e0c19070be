"""What the tests of the Spark face share: one small local session, with the settings we ship."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from skewless_spark.session import build_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real Spark on two cores, for the whole test session."""
    session = build_session("tests", "local[2]")
    session.conf.set("spark.sql.shuffle.partitions", 2)
    yield session
    session.stop()
