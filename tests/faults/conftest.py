"""Real Spark, in this process, and the run that faults happen to, without it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.harness import Harness
from tests.spark.conftest import spark

__all__ = ["spark"]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """Steps, documents and checks of the product; plain Python in the place of Spark."""
    one = Harness(tmp_path_factory.mktemp("light"), spark=False)
    yield one
    one.close()
