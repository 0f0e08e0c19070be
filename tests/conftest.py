"""What holds for all tests: their order, the examples of Hypothesis, and JVMs that are soon up."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

from tests import spark_classes

#: Folders by how long their longest file takes: two files run at a time, and the last one should be short.
LONGEST_FIRST = ("system", "cluster", "spark", "faults", "leases", "airflow", "benchmarks", "publication", "unit")
#: Files whose tests share one served Airflow run one after the other, or each of two workers would start one.
ONE_AIRFLOW = ("tests/system/test_backfill_run.py", "tests/system/test_shared_run.py", "tests/airflow/test_approval.py")

# The same examples every time; HYPOTHESIS_PROFILE=explore looks further.
settings.register_profile("fixed", derandomize=True, max_examples=30, deadline=None, database=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_classes.options())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by their folders, the longest first."""
    items.sort(key=lambda item: (_work(item.nodeid) != ONE_AIRFLOW[0], LONGEST_FIRST.index(item.path.parent.name)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker a file at a time; files that share an Airflow together."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _work(nodeid)

    return ByFile(config, log)


def _work(nodeid: str) -> str:
    """What a test is run together with: the tests of its file, and of all files that share an Airflow."""
    file = nodeid.partition("::")[0]
    return ONE_AIRFLOW[0] if file in ONE_AIRFLOW else file
