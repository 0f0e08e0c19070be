"""Native aggregates and registered ones under one roof."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint

import pytest

from skewless.aggregates import ENTRY_POINT_GROUP, RegisteredAggregates
from skewless_spark.aggregates import AggregateRegistry, NativeAggregate
from skewless_spark.aggregates.native import NATIVE_AGGREGATES

LATEST = "skewless.aggregates.shipped.latest:LATEST"


def test_a_native_name_wins_and_who_registered_it_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    registry = AggregateRegistry(
        NATIVE_AGGREGATES, RegisteredAggregates([EntryPoint("sum", LATEST, ENTRY_POINT_GROUP)])
    )
    with caplog.at_level(logging.WARNING):
        assert all(isinstance(registry["sum"], NativeAggregate) for _ in range(3))
    (record,) = caplog.records
    assert record.getMessage() == (
        "aggregate 'sum': expected a name that no native aggregate has, but got "
        "skewless.aggregates.shipped.latest:LATEST; the native one is used: rename the entry point."
    )
